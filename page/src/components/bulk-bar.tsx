/** Retry or cancel the chosen tasks. */
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api.ts";
import { t } from "../messages.ts";
import { onKey } from "../keys.ts";
import { api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";
import { Icon } from "./icon.tsx";

const PAUSE = 1000;

export type TaskAction = "retry" | "cancel";
interface BulkBarProps { uuids: readonly string[]; q: string; onDone: () => void }

export function BulkBar({ uuids, onDone }: BulkBarProps) {
  const [action, setAction] = useState<TaskAction | null>(null);
  useEffect(() => onKey("r", () => setAction("retry")), []);
  useEffect(() => onKey("c", () => setAction("cancel")), []);
  return (
    <div class="bulk">
      <strong>{t.selected(uuids.length)}</strong>
      <button onClick={() => setAction("retry")}><Icon name="retry" />{t.retry}</button>
      <button onClick={() => setAction("cancel")}><Icon name="cancelled" />{t.cancel}</button>
      {action && <ActionDialog action={action} uuids={uuids} onClose={() => setAction(null)} onDone={onDone} />}
    </div>
  );
}

interface ActionDialogProps { action: TaskAction; uuids: readonly string[]; onClose: () => void; onDone: () => void }

export function ActionDialog({ action, uuids, onClose, onDone }: ActionDialogProps) {
  const [reason, setReason] = useState("");
  const confirm = async () => {
    await runAction(action, uuids, reason.trim());
    notify("done", t.actionDone[action](uuids.length));
    onDone();
  };
  return (
    <Dialog title={t.actionTitle[action](uuids.length)} action={t.actionName[action]} danger={action === "cancel"} onClose={onClose} onConfirm={confirm}>
      <p>{t.actionEffect[action]}</p>
      <Field label={t.reason} hint={t.reasonHint}>
        <input value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}

async function runAction(action: TaskAction, uuids: readonly string[], reason: string): Promise<void> {
  for (const uuid of uuids) await patiently(() => api.send("POST", `/tasks/${encodeURIComponent(uuid)}/${action}`, { reason }));
}

/** The server allows twenty changes per second. */
async function patiently(change: () => Promise<unknown>): Promise<void> {
  for (;;) {
    try {
      await change();
      return;
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== "too_many") throw error;
      await new Promise((resolve) => window.setTimeout(resolve, PAUSE));
    }
  }
}
