"""Why a switch says that it dropped a packet: the closed set of sFlow's `drop_reason`.

Beside the reason a notice may name the rule, trap or function that dropped the packet; these names
are the switch's own, and are told as words of a fixed form.
"""

from __future__ import annotations

import re
from typing import Final

OTHER: Final = "other"
"""A reason that the specification does not have."""

_BY_ICMP: Final = """
net_unreachable host_unreachable protocol_unreachable port_unreachable frag_needed src_route_failed
dst_net_unknown dst_host_unknown src_host_isolated dst_net_prohibited dst_host_prohibited
dst_net_tos_unreachable dst_host_tos_unreacheable comm_admin_prohibited host_precedence_violation
precedence_cutoff
"""
_FROM_256: Final = """
unknown ttl_exceeded acl no_buffer_space red traffic_shaping pkt_too_big src_mac_is_multicast
vlan_tag_mismatch ingress_vlan_filter ingress_spanning_tree_filter port_list_is_empty
port_loopback_filter blackhole_route non_ip uc_dip_over_mc_dmac dip_is_loopback_address sip_is_mc
sip_is_loopback_address ip_header_corrupted ipv4_sip_is_limited_bc ipv6_mc_dip_reserved_scope
ipv6_mc_dip_interface_local_scope unresolved_neigh mc_reverse_path_forwarding non_routable_packet
decap_error overlay_smac_is_mc unknown_l2 unknown_l3 unknown_l3_exception unknown_buffer
unknown_tunnel unknown_l4
"""
_FROM_290: Final = """
sip_is_unspecified mlag_port_isolation blackhole_arp_neigh src_mac_is_dmac dmac_is_reserved
sip_is_class_e mc_dmac_mismatch sip_is_dip dip_is_local_network dip_is_link_local
overlay_smac_is_dmac egress_vlan_filter uc_reverse_path_forwarding split_horizon locked_port
dmac_filter blackhole_nexthop vxlan_parsing llc_snap_parsing vlan_parsing pppoe_ppp_parsing
mpls_parsing arp_parsing ip_1_parsing ip_n_parsing gre_parsing udp_parsing tcp_parsing
ipsec_parsing sctp_parsing dccp_parsing gtp_parsing esp_parsing unknown_parsing pkt_too_small
unhandled_proto ipv6disabled invalid_proto ip_noproto skb_csum skb_ucopy_fault dev_ready
"""
_FROM_333: Final = """
dup_frag skb_gso_seg reverse_path_forwarding icmp_parsing tcp_md5notfound tcp_md5unexpected
tcp_md5failure tcp_flags tcp_zerowindow tcp_old_data tcp_overwindow tcp_ofomerge
tcp_rfc7323_paws tcp_invalid_sequence tcp_reset tcp_invalid_syn tcp_close tcp_fastopen
tcp_old_ack tcp_too_old_ack tcp_ack_unsent_data tcp_ofo_queue_prune tcp_ofo_drop tcp_minttl
ipv6_bad_exthdr ipv6_ndisc_frag ipv6_ndisc_hop_limit ipv6_ndisc_bad_code
ipv6_ndisc_bad_options ipv6_ndisc_ns_otherhost tap_filter tap_txfilter tc_ingress
"""
_FROM_367: Final = """
xdp cpu_backlog bpf_cgroup_egress xfrm_policy socket_filter bgp_flowspec
"""
_AS_SENT: Final = {33: "dev_hdr", 36: "tc_egress"}
"""Host sFlow and sflowtool have these two numbers in the place of 332 and 366."""
REASONS: Final = (
    dict(enumerate(_BY_ICMP.split()))
    | dict(enumerate(_FROM_256.split(), 256))
    | dict(enumerate(_FROM_290.split(), 290))
    | dict(enumerate(_FROM_333.split(), 333))
    | dict(enumerate(_FROM_367.split(), 367))
    | _AS_SENT
)
"""`drop_reason` of "sFlow Dropped Packet Notification Structures" (sflow.org), with its spelling;
0 to 15 are ICMP's codes of an unreachable destination. The document ends at 289; those behind it
are what Host sFlow sends since (`sflow_drop.h`)."""

NAMES: Final = frozenset({*REASONS.values(), OTHER})

DETAILS: Final = ("acl", "trap", "linux", "function")
"""What a notice may name as the one that dropped it, the most telling first: an access list, a trap
of the chip (Linux' devlink), Linux' own reason, a function of its kernel."""
DETAIL_CHARS_MAX: Final = 64
"""Of a name: Host sFlow sends no longer ones."""
_ODD = re.compile(r"[^A-Za-z0-9_.+/-]")
_DETAIL = re.compile(rf"(?:{'|'.join(DETAILS)}):[A-Za-z0-9_.+/-]{{1,{DETAIL_CHARS_MAX}}}")


def detail_of(kind: str, name: str) -> str:
    """One word for it; empty without a name.

    >>> detail_of("acl", "deny storage"), detail_of("trap", "")
    ('acl:deny_storage', '')
    """
    assert kind in DETAILS, kind
    return f"{kind}:{_ODD.sub('_', name[:DETAIL_CHARS_MAX])}" if name else ""


def is_detail(word: str) -> bool:
    """Whether it is a word of `detail_of`.

    >>> is_detail("trap:tail_drop"), is_detail("trap:<b>"), is_detail("own:x")
    (True, False, False)
    """
    return _DETAIL.fullmatch(word) is not None
