import { useEffect, useState } from "preact/hooks";
import type { AttemptRow, TaskDetail } from "../api.ts";
import { ActionDialog, type TaskAction } from "../components/bulk-bar.tsx";
import { CopyButton } from "../components/copy.tsx";
import { Dialog, Field } from "../components/dialog.tsx";
import { Loaded } from "../components/empty.tsx";
import { Icon } from "../components/icon.tsx";
import { Download, OutsideLink, PageLink } from "../components/link.tsx";
import { jsonObject } from "../components/schedule-form.tsx";
import { StateBadge } from "../components/state.tsx";
import { Progress, title } from "../components/task-table.tsx";
import { Ago, Clock, Since } from "../components/time.tsx";
import { Timeline } from "../components/timeline.tsx";
import { Traceback } from "../components/traceback.tsx";
import { bytes, count, duration, parseTime, shortId } from "../format.ts";
import { onKey } from "../keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, canOperate, notify, router, status } from "../session.ts";
import { useView } from "../view.ts";

const ENDED = ["succeeded", "failed", "cancelled"];

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
          <Explain task={task} />
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
        {related?.group && <Fact name={t.sameError}><PageLink to={pathOf("tasks", "", { q: `group:${related.group}` })}>{t.show}</PageLink></Fact>}
        {task.trace_id && <Fact name={t.trace}>{trace ? <OutsideLink to={trace.replace("{trace_id}", task.trace_id)}>{task.trace_id.slice(0, 12)}</OutsideLink> : <code>{task.trace_id.slice(0, 12)}</code>}</Fact>}
      </dl>
      {task.progress && task.progress[1] > 0 && task.state === "running" && <Progress done={task.progress[0]} total={task.progress[1]} />}
    </header>
  );
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

/** Why it does not run, with what it would take. */
function Explain({ task }: { task: TaskDetail }) {
  const { explain } = task;
  if (!explain || explain.text === "" || ENDED.includes(task.state)) return null;
  return (
    <section class="card explain">
      <Icon name="info" />
      <div>
        <h2>{t.why[task.state === "running" ? "running" : "pending"]}</h2>
        <p>{explain.text}</p>
        {explain.more.map((more) => <p key={more.text} class="hint">{more.text}</p>)}
        {explain.estimated_start && <p class="hint">{t.estimated} <Ago at={explain.estimated_start} /></p>}
        {explain.holders.length > 0 && (
          <p class="hint">{t.heldBy} {explain.holders.map((uuid) => <PageLink key={uuid} class="tag" to={pathOf("tasks", uuid)}>{shortId(uuid)}</PageLink>)}</p>
        )}
      </div>
    </section>
  );
}

function Attempts({ errors }: { errors: readonly AttemptRow[] }) {
  const newest = [...errors].reverse();
  const [shown, show] = useState<number | null>(null);
  const error = newest.find(({ attempt }) => attempt === shown) ?? newest[0];
  if (!error) return null;
  return (
    <section class="card attempts">
      <div class="card-head"><h2>{t.attempts(errors.length)}</h2></div>
      <div class="attempts-body">
        <ul>
          {newest.map((each) => (
            <li key={each.attempt}>
              <button class="attempt" aria-pressed={each === error} onClick={() => show(each.attempt)}>
                <b>{each.attempt}</b><Icon name="failed" class="state-failed" /><span>{each.type}</span><small>{took(each)}</small>
              </button>
            </li>
          ))}
        </ul>
        <div class="attempt-detail">
          <p class="error-line"><strong>{error.type}</strong> {error.message}</p>
          <p class="hint">{error.started_at && <><Clock at={error.started_at} /> · </>}{error.worker ? t.on(shortId(error.worker)) : ""}</p>
          {error.traceback ? <Traceback text={error.traceback} /> : <p class="hint">{t.noTraceback}</p>}
        </div>
      </div>
    </section>
  );
}

function took({ started_at: from, ended_at: to }: AttemptRow): string {
  const begin = parseTime(from);
  const end = parseTime(to);
  return begin === null || end === null ? "" : duration(end - begin);
}

/** The exact text of the server: JavaScript would lose digits of long numbers. */
function Arguments({ task }: { task: TaskDetail }) {
  const metadata = task.metadata as Record<string, unknown> | null;
  return (
    <section class="card">
      <div class="card-head"><h2>{t.arguments}</h2><CopyButton text={task.args_text} /></div>
      <pre class="json" tabIndex={0}>{indented(task.args_text)}</pre>
      {metadata && Object.keys(metadata).length > 0 && <><h3>{t.metadata}</h3><pre class="json" tabIndex={0}>{JSON.stringify(metadata, null, 2)}</pre></>}
      {task.redacted.length > 0 && <p class="hint">{t.redacted(task.redacted.join(", "))}</p>}
    </section>
  );
}

/** Lines and indents without reading a number. */
export function indented(text: string): string {
  let depth = 0;
  return (text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/g) ?? []).map((token, i, all) => {
    const newline = (by: number) => `\n${"  ".repeat(Math.max(0, depth += by))}`;
    const after = all[i + 1];
    if (token === "{" || token === "[") {
      if (after === "}" || after === "]") return token;
      return token + newline(1);
    }
    if (token === "}" || token === "]") return all[i - 1] === "{" || all[i - 1] === "[" ? token : newline(-1) + token;
    if (token === ",") return token + newline(0);
    return token === ":" ? ": " : token;
  }).join("");
}

function Result({ task }: { task: TaskDetail }) {
  return (
    <section class="card">
      <div class="card-head">
        <h2>{t.result}</h2>
        {task.result_status === "stored" && <Download address={api.address(`/tasks/${encodeURIComponent(task.uuid)}/result`)}>{t.download}</Download>}
      </div>
      {task.result_status === "stored"
        ? <pre class="json" tabIndex={0}>{JSON.stringify(task.result, null, 2)}</pre>
        : <p class="hint">{ENDED.includes(task.state) ? t.resultStatus[task.result_status] ?? t.noResult : t.noResultYet}</p>}
      {task.items_saved > 0 && <p class="hint">{t.items(task.items_saved)}</p>}
      {task.steps.length > 0 && (
        <>
          <h3>{t.steps}</h3>
          <table class="rows">
            <tbody>{task.steps.map((step) => <tr key={step.name}><td>{step.name}</td><td class="time"><Clock at={step.at} /></td><td class="number">{bytes(step.size)}</td></tr>)}</tbody>
          </table>
        </>
      )}
    </section>
  );
}
