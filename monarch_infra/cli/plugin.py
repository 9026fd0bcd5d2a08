"""The program `pulumi-resource-monarch`: our plug-in for people who run plain `pulumi`.

The engine starts it, reads its port from the first line that it prints, and ends it.  Job file and target come from
the environment, as they do for the program in `stacks/`.
"""

import os
import signal
import sys
import threading

from monarch_infra.problem import InfraError


def main() -> None:
    """Serve the plug-in until the engine ends it."""
    from monarch_infra import line, plugin, render
    from monarch_infra.reconcile import Reconciler

    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    try:
        job = line.load_from_environment()
    except InfraError as error:
        sys.exit(render.error_text(error))
    # The state is where plain pulumi keeps it, so nobody here can tell which hosts are strays.
    reconciler = Reconciler(home=job.workspace.home, workdir=job.workspace.workdir, read_known=lambda: None)
    with plugin.serving(reconciler) as port:
        print(port, flush=True)
        sys.stdout = sys.stderr  # anything more on stdout and the engine gives the plug-in up
        parent = os.getppid()
        while not over.wait(1.0) and os.getppid() == parent:
            pass  # an engine that was killed says nothing


if __name__ == "__main__":
    main()
