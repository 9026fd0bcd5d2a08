"""Add up a series for pi on the mesh `workers`: each host takes its share of the terms."""

import os

from monarch.actor import Actor, current_rank, current_size, endpoint

from monarch_infra import InfraJob


class Share(Actor):
    """One host's share of 4 - 4/3 + 4/5 - 4/7 + …"""

    @endpoint
    def total(self) -> float:
        """Return the sum of every n-th term, where n is the number of hosts."""
        terms = int(os.environ["TERMS"])  # from the job file: env of the mesh
        mine = range(current_rank().rank, terms, current_size()["hosts"])
        return sum((4.0 if k % 2 == 0 else -4.0) / (2 * k + 1) for k in mine)


def main() -> None:
    """Start one process on each host, ask each for its share, and stop the processes."""
    state = InfraJob("job.yaml").state()
    procs = state.workers.spawn_procs()
    shares = procs.spawn("share", Share).total.call().get().values()
    print(f"pi is {sum(shares):.5f}, added up by {len(procs)} hosts")
    procs.stop().get()


# Monarch imports this file again on the hosts, to find `Share` there.
if __name__ == "__main__":
    main()
