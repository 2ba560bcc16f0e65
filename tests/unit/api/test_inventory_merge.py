"""Observations join to the same rows in any order and any number."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from api.data.inventory.merge import EPOCH, Tally, join
from api.data.inventory.records import DeviceKind
from api.data.inventory.sightings import Observation, Sighting

ATTRIBUTES = st.dictionaries(
    st.sampled_from(["firmware", "netdev", "x"]), st.sampled_from(["1", "2", "3"])
).map(lambda chosen: tuple(sorted(chosen.items())))
SIGHTINGS = st.one_of(
    st.builds(Sighting, host=st.sampled_from("ab"), host_attributes=ATTRIBUTES),
    st.builds(
        Sighting,
        host=st.sampled_from("ab"),
        kind=st.just(DeviceKind.RDMA),
        device=st.sampled_from("de"),
        port=st.sampled_from(["", "1"]),
        device_attributes=ATTRIBUTES,
        port_attributes=ATTRIBUTES,
    ),
)
OBSERVATIONS = st.builds(
    lambda sighting, start, length: Observation(
        sighting, EPOCH + timedelta(seconds=start), EPOCH + timedelta(seconds=start + length)
    ),
    SIGHTINGS,
    st.integers(0, 5),
    st.integers(0, 3),
)


def rows(observations: list[Observation]) -> list[object]:
    tally = Tally(observations)
    return [tally.hosts.in_order(), tally.devices.in_order(), tally.ports.in_order()]


@given(st.lists(OBSERVATIONS, max_size=8), st.data())
def test_order_and_repetition_make_no_difference(
    observations: list[Observation], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(observations))) if observations else []
    shuffled = data.draw(st.permutations(observations + again))
    assert rows(shuffled) == rows(observations)


def test_a_port_is_also_a_sighting_of_its_device_and_host() -> None:
    sighting = Sighting(host="h", kind=DeviceKind.RDMA, device="d", port="1")
    tally = Tally([Observation.at(sighting, EPOCH)])
    assert [key for key, _ in tally.hosts.in_order()] == [("h",)]
    assert [key for key, _ in tally.devices.in_order()] == [("h", "rdma", "d")]
    assert [key for key, _ in tally.ports.in_order()] == [("h", "d", "1")]


def test_the_later_value_stands_whichever_is_joined_last() -> None:
    kept = {"firmware": (2, "new")}
    assert join(kept, {"firmware": (1, "old")}) is False
    assert kept == {"firmware": (2, "new")}
    assert join(kept, {"firmware": (3, "newest"), "driver": (1, "mlx5_core")}) is True
    assert kept == {"firmware": (3, "newest"), "driver": (1, "mlx5_core")}
