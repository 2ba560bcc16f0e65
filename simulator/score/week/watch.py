"""Fabricscope in the week: from verdicts to states, drains and places, by its own code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from alerts.health.blame import charges_of
from alerts.health.judge import RISK_STEP, stand
from alerts.health.lemon import WINDOW_DAYS, lemon_score, usual_count
from alerts.health.model import Charge, HealthState, Hold, Standing, TargetKind
from alerts.judge.incident import Incident, advance
from alerts.policy.action import Action, ActionState, Checked, checked
from alerts.policy.decide import FleetHealth, Memory, decide, look_back_s
from alerts.policy.model import Policy
from alerts.policy.record import record
from api.fleet.health.answers import HostEntry
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from simulator.score.week.model import DAY_S


class Watcher:
    """Incidents, states and holds, round by round. With a policy in mode OFF it only watches."""

    def __init__(self, hosts: Sequence[str], policy: Policy) -> None:
        self._hosts = hosts
        self._policy = policy
        self._standing: list[Incident] = []
        self._charges: dict[str, dict[str, Charge]] = {}
        """By host and incident: charges that still count."""
        self._counts: dict[str, dict[str, float]] = {}
        """By host and incident, for lemons: never forgotten within a week."""
        self._actions: dict[str, Action] = {}
        self._memory = Memory()
        self._numbers = 0
        self.standings: dict[str, Standing] = {}
        self.refused: Counter[str] = Counter()

    # --- looking ---------------------------------------------------------------------------------

    def look(
        self, verdicts: Sequence[Verdict], holds: Mapping[str, Hold], now_ns: int
    ) -> list[Action]:
        """The holds that the policy begins by these verdicts; ``holds``: operators' own."""
        step = advance(self._standing, verdicts, now_ns)
        self._standing = step.incidents
        for incident in (*step.incidents, *(change.incident for change in step.changes)):
            self._hear(incident)
        self._stand(holds, now_ns)
        return self._act(now_ns)

    def _hear(self, incident: Incident) -> None:
        charged = {
            charge.target.host: charge
            for charge in charges_of(incident)
            if charge.target.kind is TargetKind.HOST
        }
        for host, known in self._charges.items():
            if incident.id in known and host not in charged:
                # It names another host by now.
                del known[incident.id]
                self._counts[host].pop(incident.id, None)
        for host, charge in charged.items():
            self._charges.setdefault(host, {})[incident.id] = charge
            counted = self._counts.setdefault(host, {})
            counted[incident.id] = charge.confidence * charge.weight

    def _stand(self, holds: Mapping[str, Hold], now_ns: int) -> None:
        mine = {each.host: each.as_hold() for each in self.standing_actions(now_ns)}
        found: dict[str, Standing] = {}
        for host in sorted({*self._charges, *holds, *mine}):
            charges = self._charges.get(host, {})
            for name in [
                name
                for name, charge in charges.items()
                if charge.until_ns is not None and charge.risk_at(now_ns) < RISK_STEP
            ]:
                del charges[name]
            before = self.standings.get(host)
            standing = stand(
                list(charges.values()),
                now_ns,
                before=before.state if before is not None else HealthState.HEALTHY,
                hold=holds.get(host) or mine.get(host),
            )
            if charges or standing.hold is not None:
                found[host] = standing
        self.standings = found

    # --- acting ----------------------------------------------------------------------------------

    def _act(self, now_ns: int) -> list[Action]:
        self._forget(now_ns)
        if not self.standings and not self._actions:
            return []
        health = FleetHealth(hosts=self._hosts, standings=self.standings)
        known = list(self._actions.values())
        decision = decide(self._policy, health, known, self._memory, now_ns)
        self._memory = decision.memory
        records = record(self._policy, decision, known, now_ns, self._name)
        self._actions = records.onto(known)
        self.refused.update(
            each.refused.value for each in records.begun if each.refused is not None
        )
        return [each for each in records.begun if each.stands(now_ns)]

    def _name(self) -> str:
        self._numbers += 1
        return f"action{self._numbers:05}"

    def _forget(self, now_ns: int) -> None:
        since_ns = now_ns - round(look_back_s(self._policy) * NS)
        self._actions = {
            name: each
            for name, each in self._actions.items()
            if each.ended_ns is None or each.ended_ns > since_ns
        }

    def standing_actions(self, now_ns: int) -> list[Action]:
        return [each for each in self._actions.values() if each.stands(now_ns)]

    def pass_check(self, host: str, now_ns: int) -> None:
        """An operator ran nccl-tests on a host, and they passed."""
        for name, each in self._actions.items():
            if each.host == host and each.state is ActionState.STANDING and each.is_live(now_ns):
                check = Checked(time_ns=now_ns, passed=True, words="nccl-tests passed")
                self._actions[name] = checked(each, check, "operator")

    # --- telling ---------------------------------------------------------------------------------

    def entries(self, now_s: float) -> dict[str, HostEntry]:
        counts = {host: sum(known.values()) for host, known in self._counts.items()}
        usual = usual_count([count for count in counts.values() if count], len(self._hosts))
        share = min(1.0, now_s / (WINDOW_DAYS * DAY_S))
        well = Standing(state=HealthState.HEALTHY, risk=0.0)
        found = {}
        for host in self._hosts:
            standing = self.standings.get(host, well)
            found[host] = HostEntry(
                host=host,
                state=standing.state,
                risk=standing.risk,
                lemon=lemon_score(counts.get(host, 0.0), usual, share),
            )
        return found
