/** Change the cap or the rate of a limit. */
import { useState } from "preact/hooks";
import type { SourceLimitRow, SourceRow } from "../api.ts";
import { t } from "../messages.ts";
import { api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";

/** Opens the limit of a whole source. */
export function LimitButton({ source: { name, limits }, onDone }: { source: SourceRow; onDone: () => void }) {
  const [isOpen, open] = useState(false);
  const own = limits.filter((limit) => limit.name === name);
  const cap = own.find((limit) => limit.cap !== null)?.cap ?? null;
  const pace = own.find((limit) => limit.rate !== null)?.rate ?? null;
  return (
    <>
      <button class="wide" onClick={() => open(true)}>{t.limitsOf}</button>
      {isOpen && <LimitDialog limit={{ name, cap, rate: pace }} onClose={() => open(false)} onDone={onDone} />}
    </>
  );
}

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
