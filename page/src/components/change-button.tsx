/** A button for one change of an operator: at once, or after a question with a reason. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ApiError } from "../api.ts";
import { t } from "../messages.ts";
import { api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";
import { Icon, type IconName } from "./icon.tsx";

interface Change {
  /** Below /api/v1; always a POST. */
  path: string;
  body?: Record<string, unknown>;
  done: string;
  onDone: () => void;
}

async function make({ path, body, done, onDone }: Change): Promise<void> {
  await api.send("POST", path, body ?? {});
  notify("done", done);
  onDone();
}

interface ChangeButtonProps extends Change { label: string; icon: IconName; primary?: boolean; disabled?: boolean }

export function ChangeButton({ label, icon, primary, disabled, ...change }: ChangeButtonProps) {
  const [isBusy, setBusy] = useState(false);
  const send = async () => {
    setBusy(true);
    try {
      await make(change);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      notify("error", error.message || t.unreachable);
    } finally {
      setBusy(false);
    }
  };
  return <button class={primary ? "primary" : ""} disabled={disabled || isBusy} onClick={() => void send()}><Icon name={icon} />{label}</button>;
}

interface AskButtonProps extends Change {
  label: string; icon: IconName; title: string; action: string; danger?: boolean;
  /** What the change does. */
  children: ComponentChildren;
}

/** The reason is required: others have to understand the change. */
export function AskButton({ label, icon, title, action, danger, children, ...change }: AskButtonProps) {
  const [isAsking, ask] = useState(false);
  const [reason, setReason] = useState("");
  const confirm = () => make({ ...change, body: { ...change.body, reason: reason.trim() } });
  return (
    <>
      <button onClick={() => ask(true)}><Icon name={icon} />{label}</button>
      {isAsking && (
        <Dialog title={title} action={action} danger={danger} disabled={reason.trim() === ""} onClose={() => ask(false)} onConfirm={confirm}>
          <p>{children}</p>
          <Field label={t.reason} hint={t.reasonHint}>
            <input value={reason} maxLength={200} required onInput={(event) => setReason(event.currentTarget.value)} />
          </Field>
        </Dialog>
      )}
    </>
  );
}
