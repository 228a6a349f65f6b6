/** Pause and resume a source, with a reason that everybody sees. */
import { useState } from "preact/hooks";
import type { SourceRow } from "../api.ts";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { api, attempt, notify } from "../session.ts";
import { ReasonDialog } from "./dialog.tsx";
import { Icon } from "./icon.tsx";

export function PauseButton({ source, onDone }: { source: SourceRow; onDone: () => void }) {
  const [isAsking, ask] = useState(false);
  const path = `/sources/${encodeURIComponent(source.name)}`;
  const resume = () => attempt(async () => {
    await api.send("POST", `${path}/resume`);
    notify("done", t.resumedNow(source.name));
    onDone();
  });
  if (source.paused) return <button class="primary" onClick={() => void resume()}><Icon name="play" />{t.resume}</button>;
  return (
    <>
      <button onClick={() => ask(true)}><Icon name="paused" />{t.pause}</button>
      {isAsking && (
        <ReasonDialog title={t.pauseTitle(source.name)} action={t.pauseAction} reason="required" onClose={() => ask(false)}
          effect={t.pauseEffect(count(source.ready + source.parked), count(source.running))}
          onConfirm={async (reason) => {
            await api.send("POST", `${path}/pause`, { reason });
            notify("done", t.pausedNow(source.name));
            onDone();
          }} />
      )}
    </>
  );
}
