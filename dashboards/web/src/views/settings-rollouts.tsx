/** Configurations on their way to agents. While nothing moves, nothing is asked again. */
import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { askCaller, mayDo } from "../api/caller";
import {
  askAgentConfigurations,
  askRollouts,
  type Configuration,
  push,
  resume,
  stop,
  takeBack,
} from "../api/configurations";
import { BackDialog, PushDialog, ResumeDialog, StopDialog } from "../parts/rollout-dialogs";
import {
  isMoving,
  ORDER_COMMANDS,
  ORDER_SCOPES,
  type Order,
  ordersOf,
} from "../parts/rollout-words";
import { AgentConfigurations, RolloutPanel, Versions, WentBack } from "../parts/rollouts";
import { keepName, ownName } from "../parts/service-browser";
import { type Resource, useResource } from "../resource";
import { now } from "../time";
import { Panel } from "../ui/panel";
import { Empty, Shown } from "../ui/states";

const PULSE_SECONDS = 10;

const LABELS: Readonly<Record<Order, string>> = {
  stop: "Stop it …",
  resume: "Let it go on …",
  back: "Take it back …",
  push: "Roll out another …",
};

export function RolloutTab() {
  const [isFollowed, setFollowed] = useState(false);
  const found = useResource(
    "roll-outs",
    async (abort) => {
      const answer = await askRollouts(abort);
      setFollowed(isMoving(answer.latest));
      return answer;
    },
    isFollowed ? Math.floor(now.value / PULSE_SECONDS) : 0,
  );
  return (
    <Shown
      resource={found}
      what="roll-outs"
      room={320}
      isEmpty={({ versions }) => versions.length === 0}
      empty={<NothingRolledOut onDone={found.reload} />}
    >
      {({ versions, latest }) =>
        latest && (
          <>
            <RolloutPanel
              latest={latest}
              now={now.value}
              acts={<Orders latest={latest} isFollowed={isFollowed} onDone={found.reload} />}
            />
            <WentBack latest={latest} now={now.value} />
            <Agents found={found} />
            <Versions versions={versions} now={now.value} />
          </>
        )
      }
    </Shown>
  );
}

function NothingRolledOut({ onDone }: { onDone: () => void }) {
  return (
    <Panel title="Configuration of agents">
      <Empty title="Nothing was ever rolled out: agents run their hosts' own files">
        Intervals, timeouts and which sources run can be changed from here, on a share of the hosts
        first. Each agent tries what it gets and goes back by itself.
      </Empty>
      <Orders latest={undefined} isFollowed={false} onDone={onDone} />
    </Panel>
  );
}

/** What the roll-out's state and the token allow; for the others the command. */
function Orders(props: {
  latest: Configuration | undefined;
  isFollowed: boolean;
  onDone: () => void;
}) {
  const { latest } = props;
  const caller = useResource("caller", askCaller);
  const [asked, setAsked] = useState<Order>();
  const rollout = latest?.version.rollout;
  const orders = ordersOf(rollout?.state);
  const allowed = orders.filter((one) => mayDo(caller.data, ORDER_SCOPES[one]));
  const others = orders.filter((one) => !allowed.includes(one));
  const close = () => setAsked(undefined);
  /** The record is the service's: what stands here is asked for anew. */
  const done = async (by: string, order: Promise<void>) => {
    keepName(by);
    await order;
    props.onDone();
  };
  const form = { by: ownName(), onClose: close };
  return (
    <>
      <div class="row rollout-acts">
        {allowed.map((one) => (
          <button key={one} type="button" onClick={() => setAsked(one)}>
            {one === "push" && !latest ? "Roll one out …" : LABELS[one]}
          </button>
        ))}
        {!props.isFollowed && (
          <button
            type="button"
            title="Nothing moves, so it is not asked by itself"
            onClick={props.onDone}
          >
            Look again
          </button>
        )}
      </div>
      {others.length > 0 && (
        <p class="soft">
          The token {caller.data?.name} of this page may not. In a terminal, with one of scope{" "}
          {others.some((one) => ORDER_SCOPES[one] === "operate") ? "operate or admin" : "admin"}:{" "}
          {others.map((one, place) => (
            <Fragment key={one}>
              {place > 0 && ", "}
              <code>{ORDER_COMMANDS[one]}</code>
            </Fragment>
          ))}
        </p>
      )}
      {asked === "push" && (
        <PushDialog
          {...form}
          document={latest?.document ?? ""}
          onPush={(wish) => done(wish.by, push(wish))}
        />
      )}
      {rollout && asked === "stop" && (
        <StopDialog
          {...form}
          rollout={rollout}
          onStop={(said) => done(said.by, stop(rollout.version, said))}
        />
      )}
      {rollout && asked === "back" && (
        <BackDialog
          {...form}
          rollout={rollout}
          onBack={(said) => done(said.by, takeBack(rollout.version, said))}
        />
      )}
      {rollout && asked === "resume" && (
        <ResumeDialog
          {...form}
          rollout={rollout}
          failed={latest?.hosts.failed ?? 0}
          onResume={(wish) => done(wish.by, resume(rollout.version, wish))}
        />
      )}
    </>
  );
}

/** Thousands of agents may take part: they are asked for when a reader wants them. */
function Agents({ found }: { found: Resource<unknown> }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <Panel
      title="What agents run"
      hint="Those that take part"
      aside={
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Hide them" : "Show them"}
        </button>
      }
    >
      {isOpen && <AgentRows pulse={found.answeredAt ?? 0} />}
    </Panel>
  );
}

function AgentRows({ pulse }: { pulse: number }) {
  const agents = useResource("agents", askAgentConfigurations, pulse);
  return (
    <Shown resource={agents} what="agents">
      {({ items, next }) => (
        <AgentConfigurations agents={items} isCut={next !== null} now={now.value} />
      )}
    </Shown>
  );
}
