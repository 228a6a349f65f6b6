/** The items of a stream as they are saved: each read continues after the last item that is shown. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { StreamList } from "../api.ts";
import { t } from "../messages.ts";
import { api, noteFailure } from "../session.ts";
import { CopyButton } from "./copy.tsx";

const PAGE = 100;
const MOST = 1000;

/** seen: how many items the server had when a read found no more; 0: it found some. */
interface Shown { texts: string[]; cursor: string; hasRestarted: boolean; seen: number }

/** saved: how many items the server has; a larger number is a reason to read on. */
export function StreamItems({ uuid, saved }: { uuid: string; saved: number }) {
  const [shown, setShown] = useState<Shown>({ texts: [], cursor: "", hasRestarted: false, seen: 0 });
  const isReading = useRef(false);
  const isGone = useRef(false);
  const [wanted, want] = useState(PAGE);
  useEffect(() => () => { isGone.current = true; }, []);
  useEffect(() => {
    if (isReading.current || shown.seen === saved || shown.texts.length >= Math.min(saved, wanted)) return;
    isReading.current = true;
    read(uuid, shown, saved).then((next) => !isGone.current && setShown(next), noteFailure).finally(() => {
      isReading.current = false;
    });
  }, [uuid, saved, wanted, shown]);
  const all = shown.texts.join("\n");
  return (
    <>
      <h3>{t.task.streamed} <span class="hint">{t.task.streamedNow(saved)}</span> <CopyButton text={all} /></h3>
      {shown.hasRestarted && <p class="hint">{t.task.restarted}</p>}
      <ol class="stream-items" tabIndex={0} aria-label={t.task.streamed}>{shown.texts.map((text, i) => <li key={i}><code>{text}</code></li>)}</ol>
      {saved > wanted && wanted < MOST && <button onClick={() => want(wanted + PAGE)}>{t.task.moreItems}</button>}
    </>
  );
}

async function read(uuid: string, shown: Shown, saved: number): Promise<Shown> {
  const found = await api.get<StreamList>(`/tasks/${encodeURIComponent(uuid)}/items`, { after: shown.cursor, limit: PAGE });
  const texts = found.items.map((row) => row.text);
  return {
    texts: found.restarted ? texts : [...shown.texts, ...texts],
    cursor: found.cursor,
    hasRestarted: shown.hasRestarted || found.restarted,
    seen: texts.length > 0 ? 0 : saved,
  };
}
