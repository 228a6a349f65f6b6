/** Pause and resume a source, with a reason that everybody sees. */
import { useState } from "preact/hooks";
import { ApiError, type SourceRow } from "../api.ts";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";
import { Icon } from "./icon.tsx";

export function PauseButton({ source, onDone }: { source: SourceRow; onDone: () => void }) {
  const [isAsking, ask] = useState(false);
  const [reason, setReason] = useState("");
  const path = `/sources/${encodeURIComponent(source.name)}`;
  const pause = async () => {
    await api.send("POST", `${path}/pause`, { reason: reason.trim() });
    notify("done", t.pausedNow(source.name));
    onDone();
  };
  const resume = async () => {
    try {
      await api.send("POST", `${path}/resume`, {});
      notify("done", t.resumedNow(source.name));
      onDone();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      notify("error", error.message);
    }
  };
  if (source.paused) return <button class="primary" onClick={() => void resume()}><Icon name="play" />{t.resume}</button>;
  return (
    <>
      <button onClick={() => ask(true)}><Icon name="paused" />{t.pause}</button>
      {isAsking && (
        <Dialog title={t.pauseTitle(source.name)} action={t.pauseAction} disabled={reason.trim() === ""} onClose={() => ask(false)} onConfirm={pause}>
          <p>{t.pauseEffect(count(source.ready + source.parked), count(source.running))}</p>
          <Field label={t.reason} hint={t.reasonHint}>
            <input value={reason} maxLength={200} required onInput={(event) => setReason(event.currentTarget.value)} />
          </Field>
        </Dialog>
      )}
    </>
  );
}
