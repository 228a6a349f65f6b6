/** The value of an event in a dialog, fetched when it is wanted. The server has hidden its secrets. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type PayloadText } from "../api.ts";
import { bytes } from "../format.ts";
import { t } from "../messages.ts";
import { api } from "../session.ts";
import { CopyButton } from "./copy.tsx";
import { Loading } from "./empty.tsx";

interface Found { payload: PayloadText; traceback?: string }

/** path: of the event or the dead letter. */
export function PayloadButton({ path, title }: { path: string; title: string }) {
  const [isOpen, open] = useState(false);
  return (
    <>
      <button data-open onClick={() => open(true)}>{t.events.payload}</button>
      {isOpen && <PayloadDialog path={path} title={title} onClose={() => open(false)} />}
    </>
  );
}

function PayloadDialog({ path, title, onClose }: { path: string; title: string; onClose: () => void }) {
  const element = useRef<HTMLDialogElement>(null);
  const [found, setFound] = useState<Found | null>(null);
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    element.current?.showModal();
    const abort = new AbortController();
    api.get<Found>(path, {}, abort.signal).then(setFound, (error: unknown) => {
      if (error instanceof ApiError) setTrouble(error.message || t.unreachable);
    });
    return () => abort.abort();
  }, []);
  return (
    <dialog ref={element} onClose={onClose} aria-labelledby="payload-title" class="payload">
      <h2 id="payload-title">{title}</h2>
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      {!found && !trouble && <Loading rows={4} />}
      {found && <Content found={found} />}
      <div class="dialog-actions"><button onClick={() => element.current?.close()}>{t.close}</button></div>
    </dialog>
  );
}

function Content({ found: { payload, traceback } }: { found: Found }) {
  const headers = Object.entries(payload.headers);
  return (
    <>
      <p class="payload-size">
        <span class="hint">{bytes(payload.size)}{payload.cut && ` · ${t.events.cut}`}</span>
        <CopyButton text={payload.text} />
      </p>
      <pre class="json" tabIndex={0}>{payload.text}</pre>
      {traceback && <pre class="json" tabIndex={0}>{traceback}</pre>}
      {headers.length > 0 && (
        <details>
          <summary>{t.events.headers(headers.length)}</summary>
          <dl class="headers">{headers.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
        </details>
      )}
    </>
  );
}
