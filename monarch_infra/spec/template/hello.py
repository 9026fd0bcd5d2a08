"""Say hello from every host of the mesh `workers`."""

from monarch.actor import Actor, current_rank, endpoint

from monarch_infra import InfraJob


class Hello(Actor):
    """Runs on every host."""

    @endpoint
    def hello(self) -> str:
        """Return who is speaking."""
        return f"hello from workers[{current_rank().rank}]"


def main() -> None:
    """Start one process on each host, ask each for its line, and stop the processes."""
    state = InfraJob("job.yaml").state()
    procs = state.workers.spawn_procs(per_host={"gpus": 1})
    actors = procs.spawn("hello", Hello)
    for line in actors.hello.call().get().values():
        print(line)
    procs.stop().get()


# Monarch imports this file again on the hosts, to find `Hello` there.
if __name__ == "__main__":
    main()
