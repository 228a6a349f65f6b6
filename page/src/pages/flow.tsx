import { useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { FlowChildrenRow, FlowDetail, FlowFailureRow, FlowHandlerRow, FlowMessage } from "../api-flows.ts";
import type { TaskAction } from "../components/bulk-bar.tsx";
import { CopyButton } from "../components/copy.tsx";
import { Loaded } from "../components/empty.tsx";
import { Bar, Fact, FlowActionDialog, WholeState } from "../components/flow-parts.tsx";
import { FlowGraph } from "../components/graph.tsx";
import { Icon } from "../components/icon.tsx";
import { PageLink } from "../components/link.tsx";
import { StateBadge } from "../components/state.tsx";
import { Ago, Clock } from "../components/time.tsx";
import { count, duration, parseTime, shortId } from "../format.ts";
import { nodeState } from "../graph.ts";
import { onKey } from "../keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { canOperate, isHeld, live, onMessage, router } from "../session.ts";
import { useView } from "../view.ts";

const LIVE = ["scheduled", "ready", "running", "waiting"];

export function FlowPage() {
  const { id } = router.location.value;
  return <FlowView key={id} id={id} />;
}

function FlowView({ id }: { id: string }) {
  const { data, error, reload } = useView<FlowDetail>(`/flows/${encodeURIComponent(id)}`, {}, {
    watch: `watch=flow&id=${encodeURIComponent(id)}`, on: ["flow", "transitions"], pause: 500, load: 10, every: 5000,
  });
  const [action, setAction] = useState<TaskAction | null>(null);
  const found = data.value;
  const progress = useLiveProgress(found);
  const living = found ? sum(found, LIVE) : 0;
  const again = found ? sum(found, ["failed", "cancelled"]) : 0;
  useEffect(() => {
    const stops = [
      onKey("c", () => canOperate.value && living > 0 && setAction("cancel")),
      onKey("r", () => canOperate.value && again > 0 && setAction("retry")),
      onKey("Escape", () => history.back()),
    ];
    return () => stops.forEach((stop) => stop());
  }, [living > 0, again > 0]);
  return (
    <Loaded data={found} error={error.value}>
      {(detail) => (
        <div class="stack">
          <Head detail={detail} progress={progress ?? detail.flow} living={living} again={again} onAction={setAction} />
          <Waits detail={detail} />
          <FlowGraph detail={detail} />
          {detail.first_failures.length > 0 && <Failures rows={detail.first_failures} />}
          {(detail.handlers.length > 0 || detail.children.length > 0) && <Others handlers={detail.handlers} children={detail.children} />}
          {action && (
            <FlowActionDialog id={detail.flow.id} action={action} tasks={action === "cancel" ? living : again}
              onClose={() => setAction(null)} onDone={() => reload(true)} />
          )}
        </div>
      )}
    </Loaded>
  );
}

function sum({ states }: FlowDetail, names: readonly string[]): number {
  return names.reduce((all, name) => all + (states[name] ?? 0), 0);
}

/** The counters of a flow come with the stream before the graph is read again; null: the graph that is shown is newer. */
function useLiveProgress(found: FlowDetail | null): FlowMessage["progress"] | null {
  const newest = useSignal<FlowMessage["progress"] | null>(null);
  useEffect(() => onMessage((name, data) => {
    if (isHeld.value) return;
    if (name === "flow") newest.value = (data as FlowMessage).progress;
  }), []);
  useEffect(() => {
    newest.value = null;
  }, [found]);
  return live.connection.value.state === "live" ? newest.value : null;
}

interface HeadProps {
  detail: FlowDetail; progress: FlowMessage["progress"]; living: number; again: number; onAction: (action: TaskAction) => void;
}

function Head({ detail, progress, living, again, onAction }: HeadProps) {
  const { flow } = detail;
  const begin = parseTime(flow.started_at);
  const end = parseTime(flow.ended_at);
  return (
    <header class="task-head">
      <div class="task-title">
        <h1>{flow.label || flow.source}</h1>
        <WholeState state={flow.state} ended={flow.ended_at !== null} />
        <span class="grow" />
        {canOperate.value && living > 0 && <button onClick={() => onAction("cancel")}><Icon name="cancelled" />{t.wholeButton.cancel}</button>}
        {canOperate.value && again > 0 && <button onClick={() => onAction("retry")}><Icon name="retry" />{t.wholeButton.retry(count(again))}</button>}
      </div>
      <p class="id-line"><code>{flow.id}</code><CopyButton text={flow.id} label={t.copyId} /></p>
      <dl class="facts-list">
        <Fact name={t.ended}><span class="flow-done">{t.ofTotal(count(progress.done), count(progress.total))}</span></Fact>
        <Fact name={t.notSucceeded}><span class={progress.failed > 0 ? "bad-number" : ""}>{count(progress.failed)}</span></Fact>
        <Fact name={t.columns.began}><Clock at={flow.started_at} /> <span class="hint"><Ago at={flow.started_at} /></span></Fact>
        {end !== null && begin !== null && <Fact name={t.columns.duration}>{duration(end - begin)}</Fact>}
        <Fact name={t.lastTask}><PageLink to={pathOf("tasks", flow.id)}>{flow.source}</PageLink></Fact>
        <Fact name={t.itsTasks}><PageLink to={pathOf("tasks", "", { q: `flow:${flow.id}` })}>{t.showAll(Object.values(detail.states).reduce((all, n) => all + n, 0))}</PageLink></Fact>
      </dl>
      <Bar {...progress} name={t.progress} />
    </header>
  );
}

/** What the last task waits for, and what holds the tasks back that it waits for. */
function Waits({ detail }: { detail: FlowDetail }) {
  if (detail.waits === "" || detail.flow.ended_at !== null) return null;
  return (
    <section class="card explain">
      <Icon name="info" />
      <div>
        <h2>{t.whyNotDone}</h2>
        <p>{detail.waits}</p>
        {detail.blocked_by.map((text) => <p key={text} class="hint">{text}</p>)}
        <p class="link-row">
          <PageLink class="button" to={pathOf("tasks", detail.flow.id)}>{t.openLastTask}</PageLink>
          <PageLink class="button" to={pathOf("waiting", "", { flow: detail.flow.id })}>{t.whatWaits}</PageLink>
        </p>
      </div>
    </section>
  );
}

function Failures({ rows }: { rows: readonly FlowFailureRow[] }) {
  return (
    <section class="card">
      <div class="card-head"><h2>{t.firstFailures}</h2></div>
      <table class="rows cards">
        <thead><tr><th class="state-column">{t.columns.state}</th><th>{t.columns.task}</th><th>{t.columns.reason}</th></tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.uuid}>
              <td class="state-column"><StateBadge state={row.state} /></td>
              <td class="main"><PageLink to={pathOf("tasks", row.uuid)}>{row.source}</PageLink> <code class="hint">{shortId(row.uuid)}</code></td>
              <td class={row.state === "failed" ? "error-text" : ""}><span class="clamp">{row.error}</span></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Tasks beside the graph: handlers of its end, and what its tasks have added. */
function Others({ handlers, children }: { handlers: readonly FlowHandlerRow[]; children: readonly FlowChildrenRow[] }) {
  return (
    <section class="card">
      <div class="card-head"><h2>{t.besideGraph}</h2></div>
      <table class="rows cards">
        <thead><tr><th class="state-column">{t.columns.state}</th><th>{t.columns.source}</th><th>{t.columns.kind}</th><th>{t.columns.note}</th></tr></thead>
        <tbody>
          {handlers.map((row) => (
            <tr key={row.uuid}>
              <td class="state-column"><StateBadge state={row.state} /></td>
              <td class="main"><PageLink to={pathOf("tasks", row.uuid)}>{row.source}</PageLink></td>
              <td>{t.handlerKinds[row.kind] ?? row.kind}</td>
              <td class="reason"><span class="clamp">{row.remark}</span></td>
            </tr>
          ))}
          {children.map((row) => (
            <tr key={row.uuid}>
              <td class="state-column"><StateBadge state={nodeState(row.states)} /></td>
              <td class="main"><PageLink to={pathOf("tasks", row.uuid)}>{row.source}</PageLink>{row.count > 1 && <span class="hint"> {t.timesCount(count(row.count))}</span>}</td>
              <td>{row.by === null ? t.spawned : <PageLink to={pathOf("tasks", row.by)}>{t.runBy(shortId(row.by))}</PageLink>}</td>
              <td class="reason"><span class="clamp">{row.remark}</span></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
