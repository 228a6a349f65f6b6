/** What the pages of flows and batches share: state, progress, tabs, and the dialogs that cancel or retry all of one. */
import { useState } from "preact/hooks";
import type { BulkAction, State } from "../api.ts";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, notify } from "../session.ts";
import { DEFAULT_RATE, follow, RateField, rateOf, type TaskAction } from "./bulk-bar.tsx";
import { ReasonDialog } from "./dialog.tsx";
import { Icon } from "./icon.tsx";
import { PageLink } from "./link.tsx";
import { StateBadge } from "./state.tsx";

/** A flow that has not ended is in progress, whatever its last task waits for. */
export function WholeState({ state, ended }: { state: State; ended: boolean }) {
  if (ended) return <StateBadge state={state} />;
  return <span class="state state-running"><Icon name="running" /><span>{t.inProgress}</span></span>;
}

interface ShareProps { done: number; failed: number; total: number; name?: string }

/** A bar with its failed part, and "9,214 of 10,014". */
export function Share({ done, failed, total, name }: ShareProps) {
  return (
    <span class="share">
      <Bar done={done} failed={failed} total={total} name={name} />
      <span class="share-text">{t.ofTotal(count(done), count(total))}</span>
    </span>
  );
}

export function Bar({ done, failed, total, name }: ShareProps) {
  const part = (n: number) => ({ width: `${total > 0 ? Math.min(100, (n / total) * 100) : 0}%` });
  return (
    <span class="bar-track" role="progressbar" aria-label={name ?? t.progress} aria-valuemin={0} aria-valuemax={Math.max(1, total)} aria-valuenow={Math.min(done, Math.max(1, total))}>
      <span class="bar-done" style={part(done - failed)} />
      <span class="bar-failed" style={part(failed)} />
    </span>
  );
}

const STATES = ["", "alive", "failed", "cancelled", "succeeded"] as const;

export function StateTabs({ page, state }: { page: "flows" | "batches"; state: string }) {
  return (
    <nav class="tabs" aria-label={t.byState}>
      {STATES.map((each) => (
        <PageLink key={each} to={pathOf(page, "", { state: each })} current={state === each}>
          {each !== "" && <Icon name={each === "alive" ? "running" : each} class={`state-${each === "alive" ? "running" : each}`} />}
          {each === "" ? t.all : each === "alive" ? t.inProgress : t.states[each]}
        </PageLink>
      ))}
    </nav>
  );
}

interface FlowActionProps { id: string; action: TaskAction; tasks: number; onClose: () => void; onDone: () => void }

/** tasks: how many live, or run again. */
export function FlowActionDialog({ id, action, tasks, onClose, onDone }: FlowActionProps) {
  const [rate, setRate] = useState(DEFAULT_RATE);
  const start = async (reason: string) => {
    follow(await api.send<BulkAction>("POST", `/flows/${encodeURIComponent(id)}/${action}`, { rate: rateOf(rate), reason }));
    onDone();
  };
  return (
    <ReasonDialog title={t.flowTitle[action]} action={t.flowAction[action]} effect={t.wholeEffect[action](tasks)} danger={action === "cancel"} onClose={onClose} onConfirm={start}>
      {tasks > 1 && <RateField rate={rate} onInput={setRate} />}
    </ReasonDialog>
  );
}

interface CancelBatchProps { id: string; tasks: number; onClose: () => void; onDone: () => void }

/** tasks: how many live. */
export function CancelBatchDialog({ id, tasks, onClose, onDone }: CancelBatchProps) {
  const cancel = async (reason: string) => {
    const { changed } = await api.send<{ changed: number }>("POST", `/batches/${encodeURIComponent(id)}/cancel`, { reason });
    notify("done", t.actionDone.cancel(changed));
    onDone();
  };
  return <ReasonDialog title={t.cancelRestTitle} action={t.cancelRestAction} effect={t.wholeEffect.cancel(tasks)} danger onClose={onClose} onConfirm={cancel} />;
}

export function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}
