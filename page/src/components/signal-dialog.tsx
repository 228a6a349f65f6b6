/** Send a signal to one waiting task, or to all that wait for its name. */
import { useState } from "preact/hooks";
import type { WaitingRow } from "../api-flows.ts";
import { t } from "../messages.ts";
import { api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";

/** The value of a text in JSON; undefined: it is not JSON. An empty text is null. */
export function parsePayload(text: string): unknown {
  if (text.trim() === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function SignalDialog({ row, onClose, onDone }: { row: WaitingRow; onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState(row.signals[0] ?? "");
  const [payload, setPayload] = useState("");
  const [isForAll, setForAll] = useState(false);
  const [reason, setReason] = useState("");
  const value = parsePayload(payload);
  const confirm = async () => {
    const { added } = await api.send<{ added: boolean }>("POST", `/signals/${encodeURIComponent(name)}`, {
      payload: value, to: isForAll ? null : row.uuid, reason: reason.trim(),
    });
    notify("done", added ? t.signalSent(name) : t.signalKept(name));
    onDone();
  };
  return (
    <Dialog title={t.signalTitle(row.label || row.source)} action={t.signalAction} disabled={value === undefined} onClose={onClose} onConfirm={confirm}>
      {row.signals.length > 1 && (
        <Field label={t.signalName}>
          <select value={name} onInput={(event) => setName(event.currentTarget.value)}>{row.signals.map((each) => <option key={each} value={each}>{each}</option>)}</select>
        </Field>
      )}
      {row.signals.length === 1 && <p>{t.signalOf(name)}</p>}
      <Field label={t.payload} hint={value === undefined ? undefined : t.payloadHint}>
        <textarea class="code" rows={4} value={payload} spellcheck={false} aria-invalid={value === undefined} onInput={(event) => setPayload(event.currentTarget.value)} />
      </Field>
      {value === undefined && <p class="trouble" role="alert">{t.badPayload}</p>}
      <fieldset class="scope">
        <legend>{t.scope}</legend>
        <label><input type="radio" name="scope" checked={!isForAll} onChange={() => setForAll(false)} />{t.scopeOne}</label>
        <label><input type="radio" name="scope" checked={isForAll} onChange={() => setForAll(true)} />{t.scopeAll(name)}</label>
      </fieldset>
      <Field label={t.reason} hint={t.reasonHint}>
        <input value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}
