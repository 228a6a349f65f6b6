import { useEffect, useState } from "preact/hooks";
import type { SameRow, TaskDetail } from "../api.ts";
import { Attempts } from "../components/attempts.tsx";
import { ActionDialog, type TaskAction } from "../components/bulk-bar.tsx";
import { CopyButton } from "../components/copy.tsx";
import { CopyMenu } from "../components/copy-as.tsx";
import { Dialog, Field } from "../components/dialog.tsx";
import { Loaded } from "../components/empty.tsx";
import { Explain } from "../components/explain.tsx";
import { Icon } from "../components/icon.tsx";
import { OutsideLink, PageLink } from "../components/link.tsx";
import { jsonObject } from "../components/schedule-form.tsx";
import { StateBadge } from "../components/state.tsx";
import { Arguments, Result } from "../components/task-contents.tsx";
import { Progress, title } from "../components/task-table.tsx";
import { Ago, Clock, Since } from "../components/time.tsx";
import { Timeline } from "../components/timeline.tsx";
import { count, duration, shortId } from "../format.ts";
import { onKey } from "../keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, canOperate, isHeld, notify, router, status } from "../session.ts";
import { useView } from "../view.ts";

const ENDED = ["succeeded", "failed", "cancelled"];
/** Milliseconds: what holds a task back can end without a change of the task. */
const EXPLAIN_EVERY = 500;
/** And the worker of a running one can die; nothing changes the task before another worker takes it. */
const RUNNING_EVERY = 2000;

export function TaskPage() {
  const { id } = router.location.value;
  return <TaskView key={id} uuid={id} />;
}

function TaskView({ uuid }: { uuid: string }) {
  const path = `/tasks/${encodeURIComponent(uuid)}`;
  const { data, error, reload } = useView<TaskDetail>(path, { include: "explain,timeline,related" }, {
    watch: `watch=task&uuid=${encodeURIComponent(uuid)}`, on: ["task", "transitions"], pause: 100,
  });
  const [action, setAction] = useState<TaskAction | null>(null);
  const found = data.value;
  const every = found === null ? 0 : explainEvery(found);
  useEffect(() => {
    if (every === 0) return;
    const timer = window.setInterval(() => {
      if (!document.hidden && !isHeld.value) reload();
    }, every);
    return () => window.clearInterval(timer);
  }, [every, reload]);
  const possible = found ? actionsOf(found) : [];
  useEffect(() => {
    const stops = [
      onKey("r", () => canOperate.value && possible.includes("retry") && setAction("retry")),
      onKey("c", () => canOperate.value && possible.includes("cancel") && setAction("cancel")),
      onKey("Escape", () => history.back()),
    ];
    return () => stops.forEach((stop) => stop());
  }, [possible.join()]);
  return (
    <Loaded data={found} error={error.value}>
      {(task) => (
        <div class="stack">
          <Head task={task} actions={possible} onAction={setAction} />
          <Explain task={task} onDone={() => reload(true)} />
          {task.timeline && task.timeline.length > 0 && <Timeline segments={task.timeline} />}
          {task.errors.length > 0 && <Attempts errors={task.errors} />}
          <div class="columns">
            <Arguments task={task} />
            <Result task={task} />
          </div>
          {action && <ActionDialog action={action} uuids={[task.uuid]} onClose={() => setAction(null)} onDone={() => reload(true)} />}
        </div>
      )}
    </Loaded>
  );
}

/** Milliseconds after which what the page says may be outdated; 0: it stays as it is. */
function explainEvery({ state }: TaskDetail): number {
  if (ENDED.includes(state)) return 0;
  return state === "running" ? RUNNING_EVERY : EXPLAIN_EVERY;
}

function actionsOf(task: TaskDetail): TaskAction[] {
  if (task.state === "failed" || task.state === "cancelled") return ["retry"];
  return ENDED.includes(task.state) || task.cancel_wanted ? [] : ["cancel"];
}

function Head({ task, actions, onAction }: { task: TaskDetail; actions: TaskAction[]; onAction: (action: TaskAction) => void }) {
  const { related } = task;
  const trace = status.value?.trace_url;
  return (
    <header class="task-head">
      <div class="task-title">
        <h1>{title(task)}</h1>
        <StateBadge state={task.state} />
        {task.cancel_wanted && !ENDED.includes(task.state) && <span class="hint">{t.cancelWanted}</span>}
        <span class="grow" />
        <CopyMenu cli={`onthedot task show ${task.uuid}`} path={`/tasks/${encodeURIComponent(task.uuid)}`} python={`await app.get("${task.uuid}")`} />
        {canOperate.value && ENDED.includes(task.state) && <RetryChanged task={task} />}
        {canOperate.value && actions.map((action) => (
          <button key={action} onClick={() => onAction(action)}><Icon name={action === "retry" ? "retry" : "cancelled"} />{t[action]}</button>
        ))}
      </div>
      <p class="id-line"><code>{task.uuid}</code><CopyButton text={task.uuid} label={t.copyId} /></p>
      <dl class="facts-list">
        <Fact name={t.columns.source}><PageLink to={pathOf("sources", task.source)}>{task.source}</PageLink></Fact>
        {task.ended_at
          ? <Fact name={t.ended}><Clock at={task.ended_at} /> <span class="hint"><Ago at={task.ended_at} /></span></Fact>
          : <Fact name={t.due}><Clock at={task.due_at} /> <span class="hint"><Ago at={task.due_at} /></span></Fact>}
        <Fact name={t.added}><Clock at={task.added_at} /></Fact>
        {task.state === "running"
          ? <Fact name={t.runningFor}><Since at={task.started_at} /></Fact>
          : task.duration_ms !== null && <Fact name={t.columns.duration}>{duration(task.duration_ms)}</Fact>}
        {task.attempt > 0 && <Fact name={t.columns.attempt}>{task.max_retries > 0 ? t.ofLimit(String(task.attempt), String(task.max_retries + 1)) : String(task.attempt)}</Fact>}
        <Fact name={t.priority}>{String(task.priority)}</Fact>
        {task.worker && <Fact name={t.columns.worker}><code title={task.worker}>{shortId(task.worker)}</code></Fact>}
        {task.lane && <Fact name={t.lane}><code>{task.lane}</code></Fact>}
        {task.unique && <Fact name={t.unique}><code>{task.unique}</code></Fact>}
        {task.crashes > 0 && <Fact name={t.crashes}>{count(task.crashes)}</Fact>}
        {task.tags.length > 0 && <Fact name={t.tags}>{task.tags.map((tag) => <PageLink key={tag} class="tag" to={pathOf("tasks", "", { q: `tag:${tag}` })}>{tag}</PageLink>)}</Fact>}
        {related?.parent && <Fact name={t.parent}><PageLink to={pathOf("tasks", related.parent)}>{shortId(related.parent)}</PageLink></Fact>}
        {related?.flow && <Fact name={t.columns.flow}><PageLink to={pathOf("flows", related.flow)}>{shortId(related.flow)}</PageLink></Fact>}
        {related?.batch && <Fact name={t.columns.batch}><PageLink to={pathOf("batches", related.batch)}>{shortId(related.batch)}</PageLink></Fact>}
        {related?.same.map((same) => <Fact key={same.kind} name={sameName(same)}><Same row={same} /></Fact>)}
        {task.waits_for && <Fact name={t.task.waitsFor}><Waits task={task} /></Fact>}
        {task.release && <Fact name={t.task.release}><code>{task.release}</code></Fact>}
        {task.trace_id && <Fact name={t.trace}>{trace ? <OutsideLink to={trace.replace("{trace_id}", task.trace_id)}>{task.trace_id.slice(0, 12)}</OutsideLink> : <code>{task.trace_id.slice(0, 12)}</code>}</Fact>}
      </dl>
      {task.progress && task.progress[1] > 0 && task.state === "running" && <Progress done={task.progress[0]} total={task.progress[1]} />}
    </header>
  );
}

function sameName({ kind, name }: SameRow): string {
  return kind === "argument" ? t.task.same.argument(name) : t.task.same[kind];
}

function Same({ row }: { row: SameRow }) {
  if (row.kind === "schedule") return <PageLink to={pathOf("schedules")}>{row.name}</PageLink>;
  const text = row.n === null ? t.show : t.task.number(row.n, row.exact);
  return <PageLink to={pathOf("tasks", "", { q: row.q })}>{row.value} {text}</PageLink>;
}

function Waits({ task: { waits_for: wait } }: { task: TaskDetail }) {
  if (!wait) return null;
  if (wait.signals.length > 0) return <>{t.forSignals(wait.signals)}</>;
  return <>{t.task.waitsForTasks(count(wait.reached), count(wait.needed))}</>;
}

/** A copy of the task with other arguments, or at another time. */
function RetryChanged({ task }: { task: TaskDetail }) {
  const [isOpen, open] = useState(false);
  const [args, setArgs] = useState(task.args_text);
  const [at, setAt] = useState("");
  const confirm = async () => {
    const body: Record<string, unknown> = { at: at === "" ? new Date().toISOString() : new Date(at).toISOString() };
    if (args !== task.args_text) body.args = jsonObject(args);
    const { uuid } = await api.send<{ uuid: string }>("POST", `/tasks/${encodeURIComponent(task.uuid)}/retry`, body);
    notify("done", t.addedTask(task.source));
    router.go(pathOf("tasks", uuid));
  };
  return (
    <>
      <button onClick={() => open(true)}>{t.withChanges}</button>
      {isOpen && (
        <Dialog title={t.changesTitle} action={t.addAction} onClose={() => open(false)} onConfirm={confirm}>
          <p>{t.changesEffect}{task.redacted.some((path) => path.startsWith("args.")) && ` ${t.changesRedacted}`}</p>
          <Field label={t.argumentsJson}><textarea rows={6} spellcheck={false} value={args} onInput={(event) => setArgs(event.currentTarget.value)} /></Field>
          <Field label={t.atTime}><input type="datetime-local" value={at} onInput={(event) => setAt(event.currentTarget.value)} /></Field>
        </Dialog>
      )}
    </>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}
