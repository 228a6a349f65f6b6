/** A question before a change: what happens, why, and one button that does it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api.ts";
import { t } from "../messages.ts";

interface DialogProps {
  title: string;
  action: string;
  danger?: boolean;
  disabled?: boolean;
  onClose: () => void;
  /** The dialog closes when it is done; its error is shown here. */
  onConfirm: () => Promise<void>;
  children: ComponentChildren;
}

export function Dialog({ title, action, danger, disabled, onClose, onConfirm, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const [trouble, setTrouble] = useState("");
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  const confirm = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await onConfirm();
      onClose();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setTrouble(error.message || t.unreachable);
      setBusy(false);
    }
  };
  return (
    <dialog ref={element} onClose={onClose} aria-labelledby="dialog-title">
      <form onSubmit={(event) => void confirm(event)}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        {trouble && <p class="trouble" role="alert">{trouble}</p>}
        <div class="dialog-actions">
          <button type="button" onClick={() => element.current?.close()}>{t.keep}</button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={disabled || isBusy}>{action}</button>
        </div>
      </form>
    </dialog>
  );
}

interface ReasonDialogProps {
  title: string;
  action: string;
  effect: string;
  reason?: "required" | "optional" | "none";
  danger?: boolean;
  onClose: () => void;
  onConfirm: (reason: string) => Promise<void>;
  /** Fields below the reason, which has the focus first. */
  children?: ComponentChildren;
}

/** A change with its effect in words, and the reason for it. */
export function ReasonDialog({ effect, reason: need = "optional", onConfirm, children, ...rest }: ReasonDialogProps) {
  const [reason, setReason] = useState("");
  return (
    <Dialog {...rest} disabled={need === "required" && reason.trim() === ""} onConfirm={() => onConfirm(reason.trim())}>
      <p>{effect}</p>
      {need !== "none" && (
        <Field label={t.reason} hint={t.reasonHint}>
          <input value={reason} maxLength={200} required={need === "required"} onInput={(event) => setReason(event.currentTarget.value)} />
        </Field>
      )}
      {children}
    </Dialog>
  );
}

export function Field({ label, children, hint }: { label: string; children: ComponentChildren; hint?: string }) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {hint && <small>{hint}</small>}
    </label>
  );
}
