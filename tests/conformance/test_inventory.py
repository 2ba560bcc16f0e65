"""The same questions asked of the inventory on SQLite and on PostgreSQL."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import inspect, text

from api.base.limits import PAGE_MAX
from api.data.inventory import migrate
from api.data.inventory.batches import SEQUENCE_MAX, BatchRun
from api.data.inventory.engine import InventoryRefusedError, open_engine
from api.data.inventory.merge import EPOCH
from api.data.inventory.records import Device, DeviceKind, Host, Port
from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, PortValues, Sighting
from api.data.inventory.tables import Base
from collector.contract.errors import InventoryError
from collector.contract.identity import PortId
from tests.tools.cut import CUT

ROOT = Path(__file__).resolve().parent.parent.parent
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOSTS = count()


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def port(host: str = "h1", name: str = "1", device: str = "mlx5_0", **more: str) -> Sighting:
    return Sighting(
        host=host,
        kind=DeviceKind.RDMA,
        device=device,
        port=name,
        port_attributes=tuple(sorted(more.items())),
    )


def observe(inventory: Inventory, *sightings: Sighting, second: float = 0) -> None:
    inventory.observe([Observation.at(sighting, at(second)) for sighting in sightings])


# --- the schema --------------------------------------------------------------------------------


def test_the_migrations_make_what_the_models_say(url: str) -> None:
    engine = open_engine(url)
    migrate.upgrade(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        assert migrate.current(connection) == "0019"
    engine.dispose()


def test_the_schema_can_go_back_and_forth(url: str) -> None:
    engine = open_engine(url)
    for _ in range(2):
        migrate.upgrade(engine)
        assert set(inspect(engine).get_table_names()) == {
            "actions",
            "agent_configurations",
            "agents",
            "alembic_version",
            "alerts",
            "cablings",
            "captures",
            "cases",
            "communicators",
            "configurations",
            "devices",
            "feedback",
            "health_turns",
            "holds",
            "hosts",
            "incident_changes",
            "incident_names",
            "incident_work",
            "incidents",
            "job_hosts",
            "job_looks",
            "job_ranks",
            "jobs",
            "leases",
            "members",
            "notices",
            "ports",
            "rule_groups",
            "service_keys",
            "silences",
            "talks",
            "tokens",
        }
        migrate.downgrade(engine, "base")
        assert inspect(engine).get_table_names() == ["alembic_version"]
    engine.dispose()


MIGRATE_ON_COMMAND = """
import sys
from api.data.inventory.repository import Inventory
inventory = Inventory(sys.argv[1])
inventory.ping()
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
inventory.migrate()
"""


def test_processes_that_start_together_migrate_once(url: str) -> None:
    command = [sys.executable, "-c", MIGRATE_ON_COMMAND, url]
    pipe = subprocess.PIPE
    with ExitStack() as stack:
        starting = [
            stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)
            )
            for _ in range(4)
        ]
        for process in starting:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for process in starting:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
        for process in starting:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said.decode()
    inventory = Inventory(url)
    assert inventory.hosts.page() == []
    inventory.close()


def test_threads_may_migrate_at_the_same_time(url: str) -> None:
    inventories = [Inventory(url) for _ in range(3)]
    with ThreadPoolExecutor(len(inventories)) as pool:
        for done in [pool.submit(inventory.migrate) for inventory in inventories]:
            done.result()
    for inventory in inventories:
        assert inventory.hosts.page() == []
        inventory.close()


def test_a_schema_of_a_newer_program_is_refused_by_name(url: str, inventory: Inventory) -> None:
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(InventoryError, match=r"revision 9999.* newer one"):
        inventory.migrate()


# --- sightings ---------------------------------------------------------------------------------


def test_a_port_brings_its_device_and_host(inventory: Inventory) -> None:
    sighting = Sighting(
        host="h1",
        kind=DeviceKind.RDMA,
        device="mlx5_0",
        port="1",
        host_attributes=(("cluster", "c1"), ("rack", "r7")),
        device_attributes=(("board_id", "MT_0838"), ("driver", "mlx5_core"), ("firmware", "28.1")),
        port_attributes=(("guid", "0x1"), ("link_layer", "Ethernet"), ("speed", "NDR")),
    )
    observe(inventory, sighting)
    seen: dict[str, Any] = {"first_seen": START, "last_seen": START}
    assert inventory.hosts.get("h1") == Host(
        host="h1",
        cluster="c1",
        agent=None,
        agent_version=None,
        attributes={"rack": "r7"},
        **seen,
    )
    assert inventory.hosts.devices("h1") == [
        Device(
            host="h1",
            kind=DeviceKind.RDMA,
            device="mlx5_0",
            driver="mlx5_core",
            firmware="28.1",
            attributes={"board_id": "MT_0838"},
            **seen,
        )
    ]
    assert inventory.hosts.ports() == [
        Port(
            host="h1",
            device="mlx5_0",
            port="1",
            link_layer="Ethernet",
            state=None,
            rate_bits_per_second=None,
            netdev=None,
            guid="0x1",
            attributes={"speed": "NDR"},
            **seen,
        )
    ]


def test_a_later_sighting_changes_and_adds_and_an_older_one_only_fills_in(
    inventory: Inventory,
) -> None:
    observe(inventory, port(netdev="ib0", x="1"), second=10)
    observe(inventory, port(netdev="ib1", y="2"), second=20)
    observe(inventory, port(netdev="ib9", x="9", z="3"), second=5)
    observe(inventory, port(), second=15)
    [found] = inventory.hosts.ports()
    assert (found.netdev, found.attributes) == ("ib1", {"x": "1", "y": "2", "z": "3"})
    assert (found.first_seen, found.last_seen) == (at(5), at(20))


def test_an_adapter_and_an_interface_may_have_one_name(inventory: Inventory) -> None:
    observe(
        inventory,
        port(device="ibp12s0"),
        Sighting(host="h1", kind=DeviceKind.NIC, device="ibp12s0"),
    )
    assert [device.kind for device in inventory.hosts.devices("h1")] == [
        DeviceKind.NIC,
        DeviceKind.RDMA,
    ]


def test_values_of_a_port_are_kept_and_move_its_last_seen(inventory: Inventory) -> None:
    values = PortValues(
        host="h1", device="mlx5_0", port="1", seen_at=at(9), state=4, rate_bits_per_second=4e11
    )
    inventory.set_port_values([values])
    late = PortValues(host="h1", device="mlx5_0", port="1", seen_at=at(3), state=1)
    inventory.set_port_values([late])
    [found] = inventory.hosts.ports()
    assert (found.state, found.rate_bits_per_second) == ("active", 400_000_000_000)
    assert (found.first_seen, found.last_seen) == (at(3), at(9))


NAMES = st.sampled_from("ab")
CHOICES = st.dictionaries(
    st.sampled_from(["netdev", "link_layer", "x"]), st.sampled_from(["1", "2"])
)


@settings(
    max_examples=CUT.examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.tuples(NAMES, st.integers(0, 4), CHOICES), min_size=1, max_size=6),
    st.data(),
)
def test_any_order_and_repetition_gives_the_same_inventory(
    inventory: Inventory, seen: list[tuple[str, int, dict[str, str]]], data: st.DataObject
) -> None:
    host = f"host-{next(HOSTS)}"
    again = data.draw(st.lists(st.sampled_from(seen), max_size=4))
    last: dict[str, datetime] = {}
    for name, second, attributes in data.draw(st.permutations(seen + again)):
        observe(inventory, port(host, name, **attributes), second=second)
        for found in inventory.hosts.ports(host):
            assert found.last_seen >= last.get(found.port, EPOCH), "last_seen never decreases"
            last[found.port] = found.last_seen
    for found in inventory.hosts.ports(host):
        mine = [(second, attributes) for name, second, attributes in seen if name == found.port]
        stands: dict[str, str] = {}
        for stamped in sorted(
            (second, value, name)
            for second, attributes in mine
            for name, value in attributes.items()
        ):
            stands[stamped[2]] = stamped[1]
        columns = {"netdev": found.netdev, "link_layer": found.link_layer}
        known = {name: value for name, value in columns.items() if value is not None}
        assert known | found.attributes == stands
        assert found.first_seen == at(min(second for second, _ in mine))
        assert found.last_seen == at(max(second for second, _ in mine))
    assert {found.port for found in inventory.hosts.ports(host)} == {name for name, _, _ in seen}


def test_writers_at_the_same_time_neither_deadlock_nor_lose(url: str, inventory: Inventory) -> None:
    other = Inventory(url)
    hosts = [f"h{number}" for number in range(30)]
    barrier = threading.Barrier(4)

    def write(writer: int) -> None:
        mine = (inventory, other)[writer % 2]
        barrier.wait()
        for turn in range(5):
            ordered = hosts if writer % 2 else hosts[::-1]
            observe(
                mine, *[port(host, **{f"w{writer}": str(turn)}) for host in ordered], second=turn
            )
            mine.note_batches([run(turn, agent=f"agent-{host}", host=host) for host in ordered])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, writer) for writer in range(4)]:
            done.result()
    found = inventory.hosts.ports(limit=100)
    assert len(found) == 30
    for one in found:
        assert one.attributes == {f"w{writer}": "4" for writer in range(4)}
        assert one.last_seen == at(4)
    assert inventory.hosts.agent("agent-h7") is not None
    other.close()


# --- batches -----------------------------------------------------------------------------------


def run(
    sequence: int, *, second: float = 0, agent: str = "a1", boot: str = "b1", host: str = ""
) -> BatchRun:
    return BatchRun.of_one(
        agent=agent, boot=boot, sequence=sequence, received_at=at(second), host=host
    )


def progress(inventory: Inventory) -> tuple[str, int, int]:
    agent = inventory.hosts.agent("a1")
    assert agent is not None
    return agent.boot, agent.last_sequence, agent.batches_missing


def test_gaps_are_counted_and_resends_change_nothing(inventory: Inventory) -> None:
    assert inventory.hosts.agent("a1") is None
    inventory.note_batches([run(100)])
    assert progress(inventory) == ("b1", 100, 0), "what came before we were there is not missing"
    inventory.note_batches([run(101), run(104), run(105)])
    assert progress(inventory) == ("b1", 105, 2)
    inventory.note_batches([run(104, second=9)])
    inventory.note_batches([run(105, second=9)])
    assert progress(inventory) == ("b1", 105, 2)
    agent = inventory.hosts.agent("a1")
    assert agent is not None
    assert agent.last_received_at == START


def test_a_backlog_fills_the_gap_that_the_newest_batch_left(inventory: Inventory) -> None:
    def backlog(first: int, last: int, second: float, boot: str = "b1") -> BatchRun:
        return BatchRun.of_one(
            agent="a1", boot=boot, sequence=last, received_at=at(second), first=first
        )

    inventory.note_batches([run(100)])
    inventory.note_batches([run(140, second=1)])
    assert progress(inventory) == ("b1", 140, 39)
    inventory.note_batches([backlog(120, 139, 2), run(141, second=2)])
    assert progress(inventory) == ("b1", 141, 19)
    inventory.note_batches([backlog(103, 119, 3), backlog(70, 90, 3, "b0")])
    assert progress(inventory) == ("b1", 141, 2)
    inventory.note_batches([backlog(101, 102, 4)])
    assert progress(inventory) == ("b1", 141, 0)


def test_a_new_boot_starts_anew_and_late_news_of_the_old_one_is_ignored(
    inventory: Inventory,
) -> None:
    inventory.note_batches([run(7), run(9)])
    inventory.note_batches([run(0, boot="b2", second=5)])
    assert progress(inventory) == ("b2", 0, 0)
    inventory.note_batches([run(10, second=4)])
    assert progress(inventory) == ("b2", 0, 0)


def test_the_largest_sequence_fits(inventory: Inventory) -> None:
    inventory.note_batches([run(0)])
    inventory.note_batches([run(SEQUENCE_MAX, second=1)])
    inventory.note_batches([run(SEQUENCE_MAX, second=2), run(0, agent="a2")])
    assert progress(inventory) == ("b1", SEQUENCE_MAX, SEQUENCE_MAX - 1)


def test_a_batch_shows_its_host_and_agent(inventory: Inventory) -> None:
    inventory.note_batches([run(1, host="h1"), run(2, host="h1", second=7)])
    found = inventory.hosts.get("h1")
    assert found is not None
    assert (found.agent, found.first_seen, found.last_seen) == ("a1", at(0), at(7))


# --- asking ------------------------------------------------------------------------------------


def test_pages_come_in_byte_order_without_hole_or_repeat(inventory: Inventory) -> None:
    names = ["B", "a", "a-1", "a1", "b", "h10", "h2", "é"]
    observe(inventory, *[port(host, number) for host in names for number in "21"])
    assert [host.host for host in inventory.hosts.page()] == sorted(names)
    pages: list[PortId] = []
    while page := inventory.hosts.ports(after=pages[-1] if pages else None, limit=3):
        pages += [PortId(found.host, found.device, found.port) for found in page]
    assert pages == [PortId(host, "mlx5_0", number) for host in sorted(names) for number in "12"]
    assert [host.host for host in inventory.hosts.page(after="a", limit=2)] == ["a-1", "a1"]
    assert [found.port for found in inventory.hosts.ports("a1", "mlx5_0")] == ["1", "2"]
    assert inventory.hosts.ports("a1", "mlx5_9") == []
    assert inventory.hosts.devices("a1", after=(DeviceKind.RDMA, "mlx5_0")) == []


def test_names_that_cannot_be_are_not_found(inventory: Inventory) -> None:
    observe(inventory, port("h1"))
    for odd in ("", "\0", "h1\0", "a/b", "h" * 1000):
        assert inventory.hosts.get(odd) is None
        assert inventory.hosts.devices(odd) == []
        assert inventory.hosts.ports(odd) == []
    assert inventory.hosts.agent("\0") is None
    assert [host.host for host in inventory.hosts.page(after="h\0")] == ["h1"]


@pytest.mark.parametrize("limit", [0, -1, PAGE_MAX + 1])
def test_a_page_has_bounds(inventory: Inventory, limit: int) -> None:
    with pytest.raises(InventoryError, match=f"limit is {limit}.*PAGE_MAX"):
        inventory.hosts.page(limit=limit)


# --- failures ----------------------------------------------------------------------------------


def test_data_that_the_database_refuses_is_told_from_a_failure(inventory: Inventory) -> None:
    too_large = BatchRun(
        agent="a1", boot="b1", first=SEQUENCE_MAX + 2, last=SEQUENCE_MAX + 2, received_at=START
    )
    observe(inventory, port("h1"))
    with pytest.raises(InventoryRefusedError, match="cannot note batches"):
        inventory.note_batches([too_large])
    assert [host.host for host in inventory.hosts.page()] == ["h1"]


def test_before_the_migration_every_question_is_an_inventory_error(url: str) -> None:
    inventory = Inventory(url)
    inventory.ping()
    with pytest.raises(InventoryError, match=r"cannot list hosts: .*hosts"):
        inventory.hosts.page()
    with pytest.raises(InventoryError, match=r"cannot keep sightings: .*hosts"):
        observe(inventory, port())
    inventory.close()


def test_a_failed_write_leaves_nothing_behind(url: str, inventory: Inventory) -> None:
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE ports"))
    engine.dispose()
    with pytest.raises(InventoryError):
        observe(inventory, port("h1"))
    assert inventory.hosts.page() == []
