/** Why a task does not run, or has ended: each reason with what holds the task back, and the button that ends the reason. */
import { useState } from "preact/hooks";
import type { ExplanationText, Holder, ReasonAction, TaskDetail } from "../api.ts";
import type { WaitingRow } from "../api-flows.ts";
import { shortId } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { canOperate } from "../session.ts";
import { ChangeButton } from "./change-button.tsx";
import { Icon } from "./icon.tsx";
import { LimitDialog } from "./limit-dialog.tsx";
import { PageLink } from "./link.tsx";
import { SignalDialog } from "./signal-dialog.tsx";
import { Ago, Since } from "./time.tsx";

interface ExplainProps { task: TaskDetail; onDone: () => void }

export function Explain({ task, onDone }: ExplainProps) {
  const { explain } = task;
  if (!explain || explain.text === "") return null;
  return (
    <section class="card explain">
      <Icon name="info" />
      <div>
        <h2>{t.why[headingOf(task)]}</h2>
        <Reason reason={explain} count={explain.held_by_count} task={task} onDone={onDone} />
        {explain.more.map((more) => <Reason key={more.text} reason={more} count={more.held_by.length} task={task} onDone={onDone} isMinor />)}
        {explain.estimated_start && <p class="hint">{t.estimated} <Ago at={explain.estimated_start} /></p>}
      </div>
    </section>
  );
}

function headingOf({ state, ended_at }: TaskDetail): keyof typeof t.why {
  if (ended_at) return "ended";
  return state === "running" ? "running" : "pending";
}

interface ReasonProps extends ExplainProps { reason: ExplanationText; count: number; isMinor?: boolean }

function Reason({ reason, count, task, onDone, isMinor }: ReasonProps) {
  const holders = reason.held_by.filter(({ uuid }) => uuid !== task.uuid);
  return (
    <>
      <p class={isMinor ? "reason-line hint" : "reason-line"}>
        <span>{reason.text}</span>
        {canOperate.value && reason.action && <ActionButton action={reason.action} task={task} onDone={onDone} />}
      </p>
      {holders.length > 0 && <Holders holders={holders} count={Math.max(count, holders.length)} />}
    </>
  );
}

function Holders({ holders, count }: { holders: readonly Holder[]; count: number }) {
  return (
    <div class="hint">
      {t.task.holders(count)}
      <ul class="plain holders">
        {holders.map((holder) => (
          <li key={holder.uuid ?? holder.worker}>
            {holder.uuid && <PageLink to={pathOf("tasks", holder.uuid)}>{holder.source} {shortId(holder.uuid)}</PageLink>}
            {holder.worker && <PageLink to={pathOf("workers")}>{t.task.worker(shortId(holder.worker))}</PageLink>}
            {holder.where && <span>{holder.where}</span>}
            {holder.since && <Since at={holder.since} />}
          </li>
        ))}
      </ul>
    </div>
  );
}

function ActionButton({ action, task, onDone }: ExplainProps & { action: ReasonAction }) {
  const [isOpen, open] = useState(false);
  const name = decodeURIComponent(action.path.split("/").slice(2).join("/"));
  const body = (action.body ?? {}) as Record<string, unknown>;
  switch (action.label) {
    case "resume":
      return <ChangeButton label={t.resume} icon="play" path={action.path} body={body} done={t.resumedNow(String(body.key ?? name.replace(/\/resume$/, "")))} onDone={onDone} />;
    case "limit":
      return (
        <>
          <button onClick={() => open(true)}>{t.task.change}</button>
          {isOpen && <LimitDialog limit={{ name, cap: null, rate: null }} onClose={() => open(false)} onDone={onDone} />}
        </>
      );
    case "signal":
      return (
        <>
          <button onClick={() => open(true)}>{t.task.signal}</button>
          {isOpen && <SignalDialog row={rowOf(task, name, String(body.to ?? ""))} onClose={() => open(false)} onDone={onDone} />}
        </>
      );
  }
}

/** The task that waits: this one, or one that it waits for. */
function rowOf(task: TaskDetail, signal: string, uuid: string): WaitingRow {
  const isOwn = uuid === task.uuid;
  return {
    uuid, short_id: shortId(uuid), source: isOwn ? task.source : shortId(uuid), label: isOwn ? task.label : "",
    signals: isOwn && task.waits_for ? task.waits_for.signals : [signal],
    flow: null, needed: 0, reached: 0, since: null, until: null,
  };
}
