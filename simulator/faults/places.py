"""Bases for the faults of this folder: they choose a place and name it as verdicts do.

A base chooses a place that slows a job down and gives every name that is right for it. A fault's
own file adds its title and the knobs that it turns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from collector.contract.errors import ContractError
from collector.contract.verdict import Culprit
from simulator.faults.model import FOREVER, Cluster, Fault, Place
from simulator.jobs.model import JobSpec
from simulator.pattern import Pattern
from simulator.topology.model import NO_LINK, Ints, LinkKind, Topology
from simulator.topology.routing import route
from simulator.topology.world import Background, World

HOSTS_MIN = 2
"""A job uses the network from so many hosts on."""
SENDERS_MAX = 8
"""NICs that a neighbour's traffic comes from: one rack's worth of storage servers, and more than
the flows that a job has into one NIC, so that a fair share among flows leaves the job little."""
ROUNDING_SECONDS = 1e-6
"""A change due within this time counts as due: times are sums of floats."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, fill the interval evenly and never repeat: irregular, not random."""


# --- jobs and hosts ------------------------------------------------------------------------------


def jobs_with_a_network(cluster: Cluster) -> list[JobSpec]:
    """Jobs of two hosts and more; of any size when there is none."""
    large = [job for job in cluster.jobs if len(job.hosts) >= HOSTS_MIN]
    return large or list(cluster.jobs)


def idle_hosts(cluster: Cluster) -> list[int]:
    """Hosts that no job of the scenario uses, early or late."""
    used = {host for job in cluster.jobs for host in job.hosts}
    return [host for host in range(cluster.topology.hosts) if host not in used]


def choose_job(cluster: Cluster, random: np.random.Generator) -> JobSpec:
    jobs = jobs_with_a_network(cluster)
    if not jobs:
        raise ContractError("no job runs on this cluster: a fault would slow down no job")
    return jobs[int(random.integers(len(jobs)))]


def choose_host(cluster: Cluster, random: np.random.Generator) -> int:
    hosts = choose_job(cluster, random).hosts
    return hosts[int(random.integers(len(hosts)))]


def choose_nic(cluster: Cluster, random: np.random.Generator) -> int:
    """A NIC of such a host that a rank sends from; one with flows, where `used_links` is known."""
    topology = cluster.topology
    host = choose_host(cluster, random)
    nics = host * topology.nics_per_host + _rails(topology)
    if cluster.used_links is not None:
        used = nics[np.isin(topology.up(nics), cluster.used_links)]
        nics = used if len(used) else nics
    return int(nics[random.integers(len(nics))])


def _rails(topology: Topology) -> Ints:
    """Numbers on their hosts of the NICs that are nearest to some GPU: a rank uses no other."""
    slots = np.arange(topology.gpus_per_host) * topology.nics_per_host // topology.gpus_per_host
    return np.unique(slots).astype(np.int32)


def crossed_links(cluster: Cluster) -> Ints:
    """Links between switches that traffic of a job's neighbours can take, ascending.

    Where two neighbours hang on different switches, the first one's switch sends up (or, in a
    dragonfly, to another router). The network chooses the link of a flow: where `used_links` is
    known, only those count.
    """
    topology = cluster.topology
    is_way_out = (topology.kind >= LinkKind.FABRIC_UP) & (topology.kind != LinkKind.FABRIC_DOWN)
    left = np.isin(topology.source_switch, leaves_left(cluster)[0])
    links: Ints = np.flatnonzero(is_way_out & left).astype(np.int32)
    if cluster.used_links is not None:
        links = links[np.isin(links, cluster.used_links)]
    return links


def leaves_left(cluster: Cluster, *, rings_only: bool = False) -> tuple[Ints, Ints]:
    """Switches with NICs whose neighbour hangs on another switch, and how many NICs those are.

    Neighbours are a job's hosts in their order, NIC by NIC: around the ring of each pipeline stage,
    and from stage to stage unless ``rings_only``.
    """
    topology = cluster.topology
    left: list[Ints] = [np.zeros(0, dtype=np.int32)]
    for job in jobs_with_a_network(cluster):
        hosts = np.asarray(job.hosts, dtype=np.int32)
        stages = job.pipeline if len(hosts) % job.pipeline == 0 else 1
        nics = hosts[:, None] * np.int32(topology.nics_per_host) + _rails(topology)
        leaf = topology.source_switch[topology.down(nics)].reshape(stages, -1, nics.shape[1])
        in_ring = leaf != np.roll(leaf, -1, axis=1)
        to_next = np.zeros_like(in_ring)
        if not rings_only:
            to_next[:-1] = leaf[:-1] != leaf[1:]
        left.append(leaf[in_ring | to_next])
    switches, nics_of_switch = np.unique(np.concatenate(left), return_counts=True)
    return switches.astype(np.int32), nics_of_switch.astype(np.int32)


def used_links(world: World, patterns: Iterable[Pattern]) -> Ints:
    """Directed links that the flows of these patterns take, ascending: for `Cluster.used_links`."""
    used = np.zeros(world.topology.links, dtype=np.bool_)
    for pattern in patterns:
        path = route(world, pattern.flow_source, pattern.flow_target, pattern.flow_key)
        used[path[path != NO_LINK]] = True
    return np.flatnonzero(used).astype(np.int32)


def choose_senders(cluster: Cluster, nic: int, random: np.random.Generator) -> tuple[int, ...]:
    """NICs of other hosts that could send to this one: of hosts without a job, if there are some.

    First those with the same number on their hosts, which share the NIC's own switch wherever the
    fabric has rails; then others of the same hosts, if hosts are few.
    """
    topology = cluster.topology
    host, rail = divmod(nic, topology.nics_per_host)
    idle = [other for other in idle_hosts(cluster) if other != host]
    hosts = idle or [other for other in range(topology.hosts) if other != host]
    shuffled = random.permutation(hosts)
    rails = (rail + np.arange(topology.nics_per_host)) % topology.nics_per_host
    senders = (rails[:, None] + shuffled[None, :] * topology.nics_per_host).reshape(-1)
    return tuple(int(sender) for sender in np.sort(senders[:SENDERS_MAX]))


# --- names ---------------------------------------------------------------------------------------


def nic_names(topology: Topology, nic: int) -> tuple[Culprit, ...]:
    """The port of a NIC: with the switch port at the other end of its cable, and either alone."""
    host = topology.host_name(topology.host_of_nic(nic))
    device, port = topology.device_name(nic), str(topology.port[topology.up(nic)])
    (far_end,) = switch_port_names(topology, topology.down(nic))
    both = Culprit(
        host=host, device=device, port=port, switch=far_end.switch, switch_port=far_end.switch_port
    )
    return both, Culprit(host=host, device=device, port=port), far_end


def switch_port_names(topology: Topology, *links: int) -> tuple[Culprit, ...]:
    """Switch ports by the links that leave them, as pollers report them."""
    return tuple(
        Culprit(
            switch=topology.switches[int(topology.source_switch[link])].name,
            switch_port=topology.switch_port_name(int(link)),
        )
        for link in links
    )


def cable_names(topology: Topology, link: int) -> tuple[Culprit, ...]:
    if link >= topology.first_fabric_link:
        return switch_port_names(topology, link, int(topology.reverse[link]))
    return nic_names(topology, link % topology.nics)


def gpu_names(cluster: Cluster, gpu: int) -> tuple[Culprit, ...]:
    """A GPU by its host and index, and by the rank of each job that runs on it."""
    topology = cluster.topology
    host, index = divmod(gpu, topology.gpus_per_host)
    name = topology.host_name(host)
    ranks = [
        (job.name, job.rank_of_gpu(gpu, topology.gpus_per_host))
        for job in cluster.jobs
        if host in job.hosts
    ]
    return (
        *(Culprit(job=job, rank=rank, host=name, gpu=index) for job, rank in ranks),
        Culprit(host=name, gpu=index),
        *(Culprit(job=job, rank=rank) for job, rank in ranks),
    )


# --- knobs that several faults turn --------------------------------------------------------------


def send_background(world: World, place: Place, load: float, period_seconds: float = 0.0) -> None:
    """Make the place's peers send to its NIC: ``load`` of line rate in all, on average.

    Steady without a period. With one, all peers send at line rate at once, at the beginning of
    every period: the more peers, the fewer milliseconds.
    """
    line = world.topology.speed.bits_per_second
    senders = len(place.peers)
    for peer in place.peers:
        if period_seconds > 0:
            on_seconds = load * period_seconds / senders
            burst = Background(peer, place.nic, line, period_seconds, on_seconds)
        else:
            burst = Background(peer, place.nic, line * load / senders)
        world.background.append(burst)


def toggles(
    elapsed_s: float, down_seconds: float, period_seconds: float, number: int
) -> tuple[bool, float]:
    """Whether a thing that comes and goes is gone now, and when that changes.

    It goes at once and is gone for about ``down_seconds`` of every ``period_seconds``, irregularly:
    each time both are stretched by up to 30 % either way, differently for each ``number``.
    """
    begin = 0.0
    turn = 0
    while True:
        stretch = 0.7 + 0.6 * ((turn * GOLDEN + number * GOLDEN**2) % 1.0)
        back, again = begin + down_seconds * stretch, begin + period_seconds * stretch
        if elapsed_s < back - ROUNDING_SECONDS:
            return True, back
        if elapsed_s < again - ROUNDING_SECONDS:
            return False, again
        begin = again
        turn += 1


def set_cable_down(world: World, link: int) -> None:
    """Both directions: a port without light sends nothing either."""
    world.link_up[link] = False
    world.link_up[world.topology.reverse[link]] = False


# --- bases ---------------------------------------------------------------------------------------


class HostFault(Fault):
    """Strikes a whole host that a job runs on."""

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        return Place(host=choose_host(cluster, random))

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The host; empty when the fault slows no job."""
        if not self.causes:
            return ()
        return (Culprit(host=cluster.topology.host_name(place.host)),)


class GpuFault(Fault):
    """Strikes one GPU of a job."""

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        host = choose_host(cluster, random)
        per_host = cluster.topology.gpus_per_host
        return Place(host=host, gpu=host * per_host + int(random.integers(per_host)))

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return gpu_names(cluster, place.gpu)


class NicFault(Fault):
    """Strikes one NIC of a job's host."""

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        return nic_place(cluster.topology, choose_nic(cluster, random))

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return nic_names(cluster.topology, place.nic)


class NeighbourFault(NicFault):
    """Traffic of other hosts into a NIC that a job uses; the queue is at the switch in front."""

    def fits(self, cluster: Cluster) -> bool:
        """Needs another host as sender."""
        return super().fits(cluster) and cluster.topology.hosts >= HOSTS_MIN

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        nic = choose_nic(cluster, random)
        senders = choose_senders(cluster, nic, random)
        leaf = int(cluster.topology.source_switch[cluster.topology.down(nic)])
        return nic_place(cluster.topology, nic)._replace(switch=leaf, peers=senders)

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The port where the queue stands, or its senders: port by port, or host by host."""
        topology = cluster.topology
        senders = [nic_names(topology, peer)[1] for peer in place.peers]
        hosts = [Culprit(host=host) for host in dict.fromkeys(one.host for one in senders)]
        return (*nic_names(topology, place.nic), *senders, *hosts)


class CableFault(Fault):
    """Strikes one direction or both of a cable that a job's traffic goes over."""

    fabric_share = 0.0
    """How often it strikes a cable between switches, where the used ones are known: a fault on any
    other would slow no job."""

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        """A cable between switches now and then, or else a host's; the direction is random."""
        topology = cluster.topology
        is_known = cluster.used_links is not None
        links = crossed_links(cluster) if is_known else ()
        if random.random() < self.fabric_share and len(links):
            link = int(links[random.integers(len(links))])
            return Place(link=link, switch=int(topology.source_switch[link]))
        nic = choose_nic(cluster, random)
        link = topology.up(nic) if random.random() < 0.5 else topology.down(nic)  # noqa: PLR2004 - a coin
        return nic_place(topology, nic)._replace(link=link)

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return cable_names(cluster.topology, place.link)


class IdleHostEvent(Fault):
    """An event on a host without a job: a verdict must name no culprit."""

    causes = ()

    def fits(self, cluster: Cluster) -> bool:
        return super().fits(cluster) and bool(idle_hosts(cluster))

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        """A host without a job, and one of its NICs; nowhere if all have one."""
        hosts = idle_hosts(cluster)
        if not hosts:
            return Place()
        topology = cluster.topology
        host = hosts[int(random.integers(len(hosts)))]
        rail = int(random.integers(topology.nics_per_host))
        return nic_place(topology, host * topology.nics_per_host + rail)

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return ()


class EverywhereEvent(Fault):
    """An event that affects the whole cluster alike: no rank stands out, no verdict is right."""

    causes = ()

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        return Place()

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return ()


def nic_place(topology: Topology, nic: int) -> Place:
    """The place of a NIC; its link is the one that its port sends on."""
    return Place(host=topology.host_of_nic(nic), nic=nic, link=topology.up(nic))


def reboots(world: World, place: Place, elapsed_s: float, down_s: float, period_s: float) -> float:
    """Keep the place's host down for about ``down_s`` of every ``period_s``; as `Fault.apply`."""
    if place.host < 0:
        return FOREVER
    is_down, change_s = toggles(elapsed_s, down_s, period_s, place.host)
    world.host_is_down[place.host] = is_down
    return change_s


def flaps(world: World, place: Place, elapsed_s: float, down_s: float, period_s: float) -> float:
    """Keep the place's cable down for about ``down_s`` of every ``period_s``; as `Fault.apply`."""
    if place.link < 0:
        return FOREVER
    is_down, change_s = toggles(elapsed_s, down_s, period_s, place.link)
    if is_down:
        set_cable_down(world, place.link)
    return change_s
