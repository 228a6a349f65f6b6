/** What the pages of flows and batches share: state, progress, tabs, and cancelling or retrying all of one. */
import { useState } from "preact/hooks";
import type { State } from "../api.ts";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";
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

export type WholeAction = "cancel" | "retry";

interface WholeActionProps { what: "flow" | "batch"; id: string; action: WholeAction; tasks: number; onClose: () => void; onDone: () => void }

/** tasks: how many live, or run again. */
export function WholeActionDialog({ what, id, action, tasks, onClose, onDone }: WholeActionProps) {
  const [reason, setReason] = useState("");
  const confirm = async () => {
    const path = `/${what === "flow" ? "flows" : "batches"}/${encodeURIComponent(id)}/${action}`;
    const { changed } = await api.send<{ changed: number }>("POST", path, { reason: reason.trim() });
    notify("done", t.actionDone[action](changed));
    onDone();
  };
  return (
    <Dialog title={t.wholeTitle[what][action]} action={t.wholeName[what][action]} danger={action === "cancel"} onClose={onClose} onConfirm={confirm}>
      <p>{t.wholeEffect[action](tasks)}</p>
      <Field label={t.reason} hint={t.reasonHint}>
        <input value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}

export function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}
