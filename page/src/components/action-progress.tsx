/** A bulk action: how far it is, and a button that stops it. Every server knows it by its id. */
import { useEffect, useState } from "preact/hooks";
import { ApiError, type BulkAction } from "../api.ts";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { api, canOperate, notify } from "../session.ts";

const PAUSE = 500;

export function isRunning(state: string): boolean {
  return state === "running" || state === "stopping";
}

export async function stopAction(id: string): Promise<void> {
  try {
    await api.send("DELETE", `/bulk-actions/${encodeURIComponent(id)}`);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    notify("error", error.message || t.unreachable);
  }
}

/** Follows one action until it has ended. */
export function ActionProgress({ action, onEnd }: { action: BulkAction; onEnd: (ended: BulkAction) => void }) {
  const [found, setFound] = useState(action);
  useEffect(() => {
    const timer = window.setInterval(() => {
      api.get<BulkAction>(`/bulk-actions/${encodeURIComponent(action.id)}`).then((next) => {
        setFound(next);
        if (!isRunning(next.state)) onEnd(next);
      }, (error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
      });
    }, PAUSE);
    return () => window.clearInterval(timer);
  }, [action.id]);
  return (
    <p class="action-progress" role="status">
      <strong>{found.action}</strong>
      <Progress done={found.done} found={found.found} />
      {canOperate.value && <button disabled={found.state !== "running"} onClick={() => void stopAction(found.id)}>{t.audit.stop}</button>}
    </p>
  );
}

export function Progress({ done, found }: { done: number; found: number }) {
  return (
    <span class="progress">
      <progress value={found > 0 ? done / found : 0} max={1} aria-label={t.progress} />
      <span>{t.ofLimit(count(done), count(found))}</span>
    </span>
  );
}
