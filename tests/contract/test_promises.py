"""What every provider promises, asked of each that is found: first verb by verb, then through the whole line.

A provider that comes later comes by itself; it brings `labs/<provider>/lab.py` and changes nothing here.
"""

import importlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.lab import TARGET, Place, place
from monarch_infra import line, render, versions
from monarch_infra import provider as catalogue
from monarch_infra.model import Boot, Diff, Ground, Host, Made, MeshSpec, Plan, Site
from monarch_infra.provider import Provider

ONE, OTHER = "1" * 32, "2" * 32
SHOWS_S = 30.0
"""A process that was started on a busy machine becomes its program after a while."""


@pytest.fixture(params=catalogue.names())
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A directory in the lab of each provider; whatever a test made there is removed."""
    lab = importlib.import_module(f"labs.{request.param}.lab").LAB
    with place(request.param, lab, tmp_path / "job", dict(versions.client())) as made:
        yield made
        for deployment in (ONE, OTHER):
            clean(Asked(made, deployment))


class Asked:
    """A provider as one deployment asks it."""

    def __init__(self, there: Place, deployment: str = ONE) -> None:
        self.provider: Provider = catalogue.find(there.provider)
        self.there, self.site = there, there.site(deployment)
        self.boot = Boot(site=self.site)

    def prepare(self) -> Ground:
        return self.provider.prepare(self.site, self.boot)

    def make(self, mesh: MeshSpec, ranks: dict[int, int]) -> Made:
        return self.provider.make(mesh, ranks, self.prepare(), self.boot)

    def find(self) -> list[Host]:
        return sorted(self.provider.find(self.site), key=lambda host: (host.mesh, host.rank, host.generation))

    def living(self) -> list[tuple[str, int, int]]:
        return self.there.lab.living(self.site)

    def lives(self, *hosts: tuple[str, int, int]) -> bool:
        """Return whether just these hosts live and are found, once what was started had the time to show itself."""
        end = time.monotonic() + SHOWS_S
        while self.living() != list(hosts) and time.monotonic() < end:
            time.sleep(0.02)
        return self.living() == names(self.find()) == list(hosts)


def clean(asked: Asked) -> None:
    hosts = asked.find()
    for mesh in {host.mesh for host in hosts}:
        asked.provider.remove(mesh, [host for host in hosts if host.mesh == mesh])
    assert asked.provider.clear(asked.site) == []
    assert asked.living() == []


def names(hosts: list[Host]) -> list[tuple[str, int, int]]:
    return [(host.mesh, host.rank, host.generation) for host in hosts]


# --- verb by verb -----------------------------------------------------------------------------------


def test_looking_at_nothing_finds_nothing_and_leaves_nothing(there: Place) -> None:
    """`find` and `preflight` of a deployment that has made nothing give nothing and change nothing."""
    asked = Asked(there)
    before = files(there)

    assert asked.find() == []
    list(asked.provider.preflight(asked.site, {"a": 2}))

    assert asked.living() == []
    assert files(there) == before


def test_prepare_twice_is_prepared_once(there: Place) -> None:
    """The same ground comes back, so that hosts made before a death and after it stand on one."""
    asked = Asked(there)

    assert asked.prepare() == asked.prepare()

    assert asked.find() == []


def test_asked_twice_for_the_same_host_one_is_made(there: Place) -> None:
    """The same {rank: generation} again, also with others beside it, makes no second host of it."""
    asked, mesh = Asked(there), there.mesh("a", 3)
    asked.make(mesh, {0: 1, 1: 1})
    first = {(h.mesh, h.rank, h.generation): h.provider_id for h in asked.find()}

    asked.make(mesh, {0: 1, 1: 1, 2: 1})

    then = {(h.mesh, h.rank, h.generation): h.provider_id for h in asked.find()}
    assert asked.lives(("a", 0, 1), ("a", 1, 1), ("a", 2, 1))
    assert first.items() <= then.items()


def test_asked_at_the_same_time_for_the_same_host_one_is_made(there: Place) -> None:
    """A call that a dead apply left under way may meet the next one's."""
    asked, mesh = Asked(there), there.mesh("a", 2)
    threads = [threading.Thread(target=asked.make, args=(mesh, {0: 1, 1: 1})) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert asked.lives(("a", 0, 1), ("a", 1, 1))


def test_a_host_is_found_with_what_it_is(there: Place) -> None:
    """Mesh, rank, generation and what it was made from are the host's own: a client that never made it reads them."""
    asked = Asked(there)
    one, two = there.mesh("a", 2), there.mesh("b", 1, env={"X": "1"})
    asked.make(one, {1: 1})
    asked.make(one, {1: 2})
    asked.make(two, {0: 7})

    found = Asked(there).find()

    assert names(found) == [("a", 1, 1), ("a", 1, 2), ("b", 0, 7)]
    assert asked.lives(*names(found))
    assert [host.made_from for host in found] == [one.made_from, one.made_from, two.made_from]
    assert len({host.provider_id for host in found}) == 3


def test_hosts_of_another_deployment_are_none_of_ours(there: Place) -> None:
    """They are not found, and removing everything of ours leaves them."""
    asked, other = Asked(there), Asked(there, OTHER)
    asked.make(there.mesh("a", 1), {0: 1})
    other.make(there.mesh("b", 1), {0: 1})

    assert names(asked.find()) == [("a", 0, 1)]
    clean(asked)

    assert other.lives(("b", 0, 1))


def test_removing_takes_what_it_is_given_and_may_be_repeated(there: Place) -> None:
    """One generation goes and the other stays; a host that has gone already, or no host at all, is no error."""
    asked, mesh = Asked(there), there.mesh("a", 1)
    asked.make(mesh, {0: 1})
    asked.make(mesh, {0: 2})
    old = [host for host in asked.find() if host.generation == 1]

    for _ in range(2):
        asked.provider.remove("a", old)
    asked.provider.remove("a", [])

    assert asked.lives(("a", 0, 2))


def test_clear_may_be_repeated_and_leaves_nothing(there: Place) -> None:
    """After the last host what was shared goes too; what cannot go would be named."""
    asked = Asked(there)
    asked.make(there.mesh("a", 1), {0: 1})
    asked.provider.remove("a", asked.find())

    assert [asked.provider.clear(asked.site) for _ in range(2)] == [[], []]

    assert asked.find() == []


def test_a_cleared_site_can_be_prepared_again(there: Place) -> None:
    """A destroy that was cut off may be followed by an apply."""
    asked = Asked(there)
    asked.prepare()
    asked.provider.clear(asked.site)

    asked.make(there.mesh("a", 1), {0: 2})

    assert asked.lives(("a", 0, 2))


def test_judging_a_change_reads_nothing(there: Place) -> None:
    """The same mesh is no change; a policy is none that a host would notice; every reason names what differs."""
    provider = catalogue.find(there.provider)
    mesh = there.mesh("a", 2)
    assert list(provider.check(mesh)) == []

    same = provider.diff(mesh, mesh)
    kept = provider.diff(mesh, mesh.model_copy(update={"on_partial": "keep", "hosts": 3}))
    env = provider.diff(mesh, mesh.model_copy(update={"env": {"X": "1"}}))

    assert same == kept == Diff()
    assert [(r.path, r.old, r.new) for r in (*env.restart, *env.replace)] == [("env.X", None, "1")]


# --- through the line -------------------------------------------------------------------------------


@pytest.fixture
def job(there: Place) -> Iterator[Place]:
    there.write("{a: 2, b: 1}")
    yield there
    there.write("{a: 1}")
    apply(there, destroys=True)


def load(there: Place) -> line.Job:
    return line.load(there.file, TARGET)


def plan(there: Place) -> Plan:
    return line.plan(load(there))


def text(made: Plan) -> str:
    return f"{render.plan_text(made)}{render.plan_json(made)}"


def apply(there: Place, *, destroys: bool = False) -> None:
    line.apply(load(there), approve=lambda made: True, asks_first=False, destroys=destroys)


def files(there: Place) -> dict[str, tuple[int, int]]:
    """Return what a plan might leave or touch; a lab's own record of calls is none of it."""
    found = sorted(there.root.rglob("*"))
    return {
        str(file.relative_to(there.root)): (file.stat().st_ino, file.stat().st_mtime_ns)
        for file in found
        if file.is_file() and file.suffix != ".log"
    }


def sites(there: Place) -> list[Site]:
    deployment = load(there).state.deployment
    return [there.site(deployment.id)] if deployment else []


def test_plan_and_destroy_keep_their_word(job: Place) -> None:
    """Plan twice gives the same bytes and changes nothing, in a fresh directory and over a state; after apply it is
    empty and apply does nothing; destroy leaves nothing that carries the deployment's id and may be repeated."""
    untouched = files(job)
    assert text(plan(job)) == text(plan(job))
    assert files(job) == untouched

    apply(job)
    (site,) = sites(job)
    made = job.lab.living(site)
    assert made == [("a", 0, 1), ("a", 1, 1), ("b", 0, 1)]
    applied = files(job)
    assert plan(job).is_empty
    assert text(plan(job)) == text(plan(job))
    apply(job)
    assert files(job) == applied
    assert job.lab.living(site) == made

    job.write("{a: 3}")
    assert text(plan(job)) == text(plan(job))
    assert files(job).keys() == applied.keys()
    apply(job)
    assert job.lab.living(site) == [("a", 0, 1), ("a", 1, 1), ("a", 2, 1)]
    assert plan(job).is_empty

    for _ in range(2):
        apply(job, destroys=True)
        assert job.lab.living(site) == []
        assert catalogue.find(job.provider).find(site) == []
    assert sites(job) == []


def test_destroying_what_was_never_applied_leaves_nothing(job: Place) -> None:
    """No file, no host, no error."""
    untouched = files(job)

    apply(job, destroys=True)

    assert files(job) == untouched
