/** Retry or cancel the chosen tasks, or all that match: count, examples, rate, reason. */
import { useEffect, useRef, useState } from "preact/hooks";
import { withAction } from "../actions.ts";
import { ApiError, type BulkAction, type BulkPreview } from "../api.ts";
import { onKey } from "../keys.ts";
import { t } from "../messages.ts";
import { actions, api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";
import { Icon } from "./icon.tsx";
import { title } from "./task-table.tsx";

const UNCONFIRMED = 100;
const RATE = 500;
export const DEFAULT_RATE = String(RATE);

export type TaskAction = "retry" | "cancel";

/** Show the progress of an action that was started here, on every page of this tab. */
export function follow(started: BulkAction): void {
  actions.value = withAction(actions.value, started, "own");
}

/** isEmpty: no task matches. */
interface BulkBarProps { isEmpty: boolean; uuids: readonly string[]; q: string; onDone: () => void }

/** Of the selection, or of all tasks of the filter. */
export function BulkBar({ isEmpty, uuids, q, onDone }: BulkBarProps) {
  const [asks, ask] = useState<{ action: TaskAction; all: boolean } | null>(null);
  const all = uuids.length === 0;
  const selected = useRef(0); // at once: a key may come before the effects of the selection
  selected.current = uuids.length;
  useEffect(() => {
    const stops = (["retry", "cancel"] as const).map((action) => onKey(action.charAt(0), () => selected.current > 0 && ask({ action, all: false })));
    return () => stops.forEach((stop) => stop());
  }, []);
  const buttons = (isAll: boolean) => (["retry", "cancel"] as const).map((action) => (
    <button key={action} onClick={() => ask({ action, all: isAll })}>
      <Icon name={action === "retry" ? "retry" : "cancelled"} />{isAll ? t.allAction[action] : t[action]}
    </button>
  ));
  return (
    <div class="bulk">
      {!all && <><strong>{t.selected(uuids.length)}</strong>{buttons(false)}</>}
      {q !== "" && !isEmpty && buttons(true)}
      {asks && <ActionDialog action={asks.action} uuids={asks.all ? [] : uuids} q={q} onClose={() => ask(null)} onDone={onDone} />}
    </div>
  );
}

/** rate: tasks per second, which the operator may change. */
interface ActionDialogProps { action: TaskAction; uuids: readonly string[]; q?: string; rate?: number; onClose: () => void; onDone: () => void }

export function ActionDialog({ action, uuids, q = "", rate: firstRate = RATE, onClose, onDone }: ActionDialogProps) {
  const [reason, setReason] = useState("");
  const [rate, setRate] = useState(String(firstRate));
  const [typed, setTyped] = useState("");
  const { preview, trouble } = usePreview(action, uuids.length > 0 ? "" : q);
  const n = uuids.length || preview?.count || 0;
  const isReady = uuids.length > 0 || preview?.exact === true;
  const mustType = uuids.length === 0 && n > UNCONFIRMED;
  const confirm = async () => {
    const [only] = uuids;
    if (uuids.length === 1 && only) {
      await api.send("POST", `/tasks/${encodeURIComponent(only)}/${action}`, { reason });
      notify("done", t.actionDone[action](1));
    } else {
      const what = uuids.length > 0 ? { uuids } : { token: preview?.token, confirm: n };
      follow(await api.send<BulkAction>("POST", `/tasks/${action}`, { ...what, rate: rateOf(rate), reason }));
    }
    onDone();
  };
  return (
    <Dialog title={isReady ? t.actionTitle[action](n) : t.counting(preview?.count ?? 0)} action={t.actionName[action]} danger={action === "cancel"}
      disabled={!isReady || n === 0 || (mustType && typed !== String(n))} onClose={onClose} onConfirm={confirm}>
      <p>{t.actionEffect[action]}</p>
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      {preview && preview.sample.length > 0 && (
        <ul class="runs">{preview.sample.map((row) => <li key={row.uuid}>{title(row)} <span class="hint">{row.source} · {row.short_id}</span></li>)}</ul>
      )}
      {n > 1 && <RateField rate={rate} onInput={setRate} />}
      {mustType && <Field label={t.typeNumber(n)}><input inputMode="numeric" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></Field>}
      <Field label={t.reason} hint={t.reasonHint}>
        <input value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}

export function RateField({ rate, onInput }: { rate: string; onInput: (rate: string) => void }) {
  return (
    <Field label={t.rate} hint={t.rateHint}>
      <input type="number" min={0.1} max={10_000} step="any" value={rate} onInput={(event) => onInput(event.currentTarget.value)} />
    </Field>
  );
}

/** The text of the field as a number. */
export function rateOf(text: string): number {
  return Number(text) || RATE;
}

/** Counts in parts, until the server has seen all tasks. */
function usePreview(action: TaskAction, q: string): { preview: BulkPreview | null; trouble: string } {
  const [found, setFound] = useState<{ preview: BulkPreview | null; trouble: string }>({ preview: null, trouble: "" });
  useEffect(() => {
    let isOpen = q !== "";
    const load = async () => {
      let cursor: string | undefined;
      while (isOpen) {
        const preview: BulkPreview = await api.send("POST", "/tasks/preview", { action, q, cursor });
        if (isOpen) setFound({ preview, trouble: "" });
        if (preview.exact) return;
        cursor = preview.cursor ?? undefined;
      }
    };
    load().catch((error: unknown) => {
      if (!(error instanceof ApiError)) throw error;
      setFound({ preview: null, trouble: error.message });
    });
    return () => {
      isOpen = false;
    };
  }, [action, q]);
  return found;
}
