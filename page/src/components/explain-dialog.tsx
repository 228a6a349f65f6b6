/** Why a task does not run, on the key `e`: of the row that is chosen, or of the task whose page is open. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type Explanation } from "../api.ts";
import { shortId } from "../format.ts";
import { onKey } from "../keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, router } from "../session.ts";
import { Loading } from "./empty.tsx";
import { PageLink } from "./link.tsx";
import { Ago } from "./time.tsx";

/** Part of the frame: the key works on every page that has tasks. */
export function ExplainOnKey() {
  const [uuid, setUuid] = useState("");
  useEffect(() => onKey("e", () => setUuid(chosenTask())), []);
  const { page, id } = router.location.value;
  useEffect(() => setUuid(""), [page, id]);
  return uuid === "" ? null : <ExplainDialog key={uuid} uuid={uuid} onClose={() => setUuid("")} />;
}

function chosenTask(): string {
  const { page, id } = router.location.value;
  if (page === "task") return id;
  return document.querySelector<HTMLElement>("tr[data-uuid]:is(.current, :focus-within)")?.dataset.uuid ?? "";
}

function ExplainDialog({ uuid, onClose }: { uuid: string; onClose: () => void }) {
  const element = useRef<HTMLDialogElement>(null);
  const [found, setFound] = useState<Explanation | null>(null);
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    element.current?.showModal();
    const abort = new AbortController();
    api.get<Explanation>(`/tasks/${encodeURIComponent(uuid)}/explain`, {}, abort.signal).then(setFound, (error: unknown) => {
      if (error instanceof ApiError) setTrouble(error.message || t.unreachable);
    });
    return () => abort.abort();
  }, []);
  return (
    <dialog ref={element} onClose={onClose} aria-labelledby="explain-title" class="explanation">
      <h2 id="explain-title">{t.explainTitle(shortId(uuid))}</h2>
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      {!found && !trouble && <Loading rows={2} />}
      {found && <Text found={found} />}
      <div class="dialog-actions">
        <PageLink class="button" to={pathOf("tasks", uuid)}>{t.openTask}</PageLink>
        <button class="primary" onClick={() => element.current?.close()}>{t.close}</button>
      </div>
    </dialog>
  );
}

function Text({ found: { text, more, estimated_start: start, holders } }: { found: Explanation }) {
  return (
    <>
      <p>{text}</p>
      {more.map((each) => <p key={each.text} class="hint">{each.text}</p>)}
      {start && <p class="hint">{t.estimated} <Ago at={start} /></p>}
      {holders.length > 0 && <p class="hint">{t.heldBy} {holders.map((holder) => <PageLink key={holder} class="tag" to={pathOf("tasks", holder)}>{shortId(holder)}</PageLink>)}</p>}
    </>
  );
}
