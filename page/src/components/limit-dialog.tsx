/** Change the cap or the rate of a limit. */
import { useState } from "preact/hooks";
import type { SourceLimitRow } from "../api.ts";
import { t } from "../messages.ts";
import { api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";

/** What is set now. */
export type LimitValues = Pick<SourceLimitRow, "name" | "cap" | "rate">;

export function LimitDialog({ limit, onClose, onDone }: { limit: LimitValues; onClose: () => void; onDone: () => void }) {
  const [cap, setCap] = useState(limit.cap === null ? "" : String(limit.cap));
  const [pace, setPace] = useState(limit.rate === null ? "" : `${limit.rate}/s`);
  const [reason, setReason] = useState("");
  const confirm = async () => {
    const body: Record<string, unknown> = { reason };
    if (cap !== "") body.cap = Number(cap);
    if (pace !== "") body.rate = pace;
    await api.send("PUT", `/limits/${encodeURI(limit.name)}`, body);
    notify("done", t.limitChanged(limit.name));
    onDone();
  };
  return (
    <Dialog title={t.limitTitle(limit.name)} action={t.save} disabled={cap === "" && pace === ""} onClose={onClose} onConfirm={confirm}>
      <p>{t.limitEffect}</p>
      <Field label={t.capLabel}><input type="number" min={0} value={cap} onInput={(event) => setCap(event.currentTarget.value)} /></Field>
      <Field label={t.paceLabel} hint={t.paceHint}><input value={pace} onInput={(event) => setPace(event.currentTarget.value)} /></Field>
      <Field label={t.reason} hint={t.reasonHint}><input value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} /></Field>
    </Dialog>
  );
}
