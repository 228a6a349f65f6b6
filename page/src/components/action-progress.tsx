/** A bulk action: how far it is, and a button that stops it. Every server knows it by its id. */
import { useEffect } from "preact/hooks";
import { isOver, withAction, withoutAction } from "../actions.ts";
import { ApiError, type BulkAction } from "../api.ts";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { actions, api, canOperate, notify } from "../session.ts";

export async function stopAction(id: string): Promise<void> {
  try {
    await api.send("DELETE", `/bulk-actions/${encodeURIComponent(id)}`);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    notify("error", error.message || t.unreachable);
  }
}

/** One action, beside what it changes, until it has ended. On other pages the frame shows it. */
export function ActionProgress({ action, onEnd }: { action: BulkAction; onEnd: (ended: BulkAction) => void }) {
  const { id } = action;
  useEffect(() => {
    actions.value = withAction(actions.value, action, "panel");
    return () => {
      const left = actions.value.find((each) => each.id === id);
      if (left) actions.value = withAction(actions.value, left, "own");
    };
  }, [id]);
  const found = actions.value.find((each) => each.id === id) ?? action;
  const hasEnded = isOver(found);
  useEffect(() => {
    if (!hasEnded) return;
    actions.value = withoutAction(actions.value, id);
    onEnd(found);
  }, [hasEnded]);
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
