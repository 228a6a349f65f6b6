/** A line per bulk action, on every page: how far it is, and a button that stops it. */
import { useEffect } from "preact/hooks";
import { isOver, type ShownAction, withAction, withoutAction } from "../actions.ts";
import type { BulkAction } from "../api.ts";
import { t } from "../messages.ts";
import { actions, api, attempt, canOperate, live, onMessage } from "../session.ts";

const LOOK_EVERY = 1000;
const OTHERS_LAST = 5000;

export function BulkProgress() {
  useEffect(() => onMessage((name, data) => {
    if (name === "bulk_action") actions.value = withAction(actions.value, data as BulkAction);
  }), []);
  usePolling(actions.value.some((action) => !isOver(action)) && live.connection.value.state !== "live");
  return <>{actions.value.filter(({ origin }) => origin !== "panel").map((action) => <Line key={action.id} action={action} />)}</>;
}

/** Without a stream, the open actions are read again and again. */
function usePolling(isNeeded: boolean): void {
  useEffect(() => {
    if (!isNeeded) return undefined;
    const timer = window.setInterval(() => void attempt(async () => {
      const open = actions.value.filter((action) => !isOver(action));
      for (const found of await Promise.all(open.map(({ id }) => api.get<BulkAction>(`/bulk-actions/${encodeURIComponent(id)}`)))) {
        actions.value = withAction(actions.value, found);
      }
    }), LOOK_EVERY);
    return () => window.clearInterval(timer);
  }, [isNeeded]);
}

function Line({ action }: { action: ShownAction }) {
  const { id, origin } = action;
  const isLeaving = origin === "other" && isOver(action);
  const close = () => {
    actions.value = withoutAction(actions.value, id);
  };
  useEffect(() => {
    if (!isLeaving) return undefined;
    const timer = window.setTimeout(close, OTHERS_LAST);
    return () => window.clearTimeout(timer);
  }, [isLeaving]);
  return (
    <div class="banner progress-line" role="status">
      <span><strong>{nameOf(action)}</strong> {t.actionState(action.done, action.found, action.changed, action.state)} {action.error}</span>
      <progress value={action.done} max={Math.max(1, action.found)} aria-label={t.progress} />
      {isOver(action)
        ? <button onClick={close}>{t.close}</button>
        : canOperate.value && <button onClick={() => void attempt(async () => {
            await api.send("DELETE", `/bulk-actions/${encodeURIComponent(id)}`);
          })}>{t.stop}</button>}
    </div>
  );
}

/** Of the server, as in the audit log: "retry tasks". */
function nameOf({ action, user, origin }: ShownAction): string {
  return origin === "other" ? t.actionBy(action, user) : action;
}
