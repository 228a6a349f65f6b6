/** Events that agents could not handle: found by filters, shown, and published again. */
import { useState } from "preact/hooks";
import type { BulkAction, DeadLetterList, DeadLetterRow } from "../api.ts";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, canOperate, notify, router } from "../session.ts";
import { useView } from "../view.ts";
import { ActionProgress } from "./action-progress.tsx";
import { Dialog, Field } from "./dialog.tsx";
import { Icon } from "./icon.tsx";
import { PageLink } from "./link.tsx";
import { PayloadButton } from "./payload.tsx";
import { Ago } from "./time.tsx";

const NAMES = ["topic", "agent", "error"] as const;
type Filter = Record<(typeof NAMES)[number], string>;

export function DeadLetters() {
  const { query } = router.location.value;
  const filter = Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""])) as Filter;
  const { data, error, reload } = useView<DeadLetterList>("/dlt", { ...filter, limit: 100 }, {
    watch: "watch=overview", on: ["bulk_action"], pause: 2000, every: 5000,
  });
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const [isAsking, ask] = useState(false);
  const [action, setAction] = useState<BulkAction | null>(null);
  const rows = data.value?.items ?? [];
  const ids = rows.map((row) => row.id).filter((id) => chosen.has(id));
  const isFiltered = NAMES.some((name) => filter[name] !== "");
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    choose(next);
  };
  const end = (ended: BulkAction) => {
    setAction(null);
    choose(new Set());
    notify(ended.error ? "error" : "done", ended.error || t.events.replayed(ended.changed, ended.found));
    reload(true);
  };
  return (
    <section class="card" aria-labelledby="dead-letters">
      <div class="card-head">
        <h2 id="dead-letters">{t.events.deadLetters}</h2>
        {action && <ActionProgress action={action} onEnd={end} />}
        {!action && ids.length > 0 && <button class="primary" onClick={() => ask(true)}><Icon name="retry" />{t.events.replay(ids.length)}</button>}
      </div>
      {(rows.length > 0 || isFiltered) && <Filters filter={filter} rows={rows} />}
      {error.value && data.value === null && <p class="pad trouble">{error.value.message}</p>}
      {data.value && rows.length === 0 && <p class="pad hint">{isFiltered ? t.events.noLetterFits : t.empty.deadLetters}</p>}
      {rows.length > 0 && <Table rows={rows} chosen={chosen} onToggle={toggle} onAll={(all) => choose(new Set(all ? rows.map(({ id }) => id) : []))} />}
      {data.value !== null && data.value.others > 0 && <p class="pages"><span class="hint">{t.events.moreLetters(count(data.value.others))}</span></p>}
      {isAsking && <ReplayDialog ids={ids} onClose={() => ask(false)} onStarted={setAction} />}
    </section>
  );
}

function Filters({ filter, rows }: { filter: Filter; rows: readonly DeadLetterRow[] }) {
  const set = (name: keyof Filter, value: string) => router.go(pathOf("outbox", "", { ...filter, [name]: value }), { replace: true });
  const words = (name: "topic" | "agent") => [...new Set([filter[name], ...rows.map((row) => row[name])])].filter(Boolean).sort();
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      {(["agent", "topic"] as const).map((name) => (
        <label key={name}><span>{t.events[name]}</span>
          <select value={filter[name]} onChange={(event) => set(name, event.currentTarget.value)}>
            <option value="">{t.all}</option>
            {words(name).map((word) => <option key={word} value={word}>{word}</option>)}
          </select>
        </label>
      ))}
      <label class="grow"><span>{t.events.error}</span>
        <input type="search" value={filter.error} placeholder={t.events.errorHint} onChange={(event) => set("error", event.currentTarget.value.trim())} />
      </label>
    </form>
  );
}

interface TableProps { rows: readonly DeadLetterRow[]; chosen: ReadonlySet<string>; onToggle: (id: string) => void; onAll: (all: boolean) => void }

function Table({ rows, chosen, onToggle, onAll }: TableProps) {
  return (
    <table class="rows cards tall">
      <thead>
        <tr>
          {canOperate.value && <th class="check"><input type="checkbox" aria-label={t.selectAll} checked={rows.every(({ id }) => chosen.has(id))} onChange={(event) => onAll(event.currentTarget.checked)} /></th>}
          <th>{t.events.event}</th><th>{t.events.agent}</th><th>{t.events.error}</th><th class="number">{t.events.attempts}</th>
          <th class="time">{t.columns.when}</th><th><span class="hidden-text">{t.columns.actions}</span></th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.id} class={chosen.has(row.id) ? "selected" : ""}>
            {canOperate.value && <td class="check shown"><input type="checkbox" aria-label={t.select(row.event_id)} checked={chosen.has(row.id)} onChange={() => onToggle(row.id)} /></td>}
            <td class="main">{row.type || row.event_id} <span class="hint">{row.topic} <code>{row.event_id}</code></span></td>
            <td class="word" data-name={t.events.agent}>{row.agent || <span class="none">{t.none}</span>}</td>
            <td class="error-text"><span class="clamp" title={row.error.message}>{t.errorText(row.error.type, row.error.message)}</span></td>
            <td class="number" data-name={t.events.attempts}>{row.attempts ?? t.none}{row.replay > 0 && <span class="hint"> {t.events.replayNumber(row.replay)}</span>}</td>
            <td class="time"><Ago at={row.at} /></td>
            <td class="actions">
              {row.task && <PageLink class="button" to={pathOf("tasks", row.task)}>{t.columns.task}</PageLink>}
              <PayloadButton path={`/dlt/${encodeURIComponent(row.id)}`} title={row.type || row.event_id} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function ReplayDialog({ ids, onClose, onStarted }: { ids: readonly string[]; onClose: () => void; onStarted: (action: BulkAction) => void }) {
  const [reason, setReason] = useState("");
  const [again, setAgain] = useState(false);
  const confirm = async () => {
    onStarted(await api.send<BulkAction>("POST", "/dlt/replay", { ids, again, reason: reason.trim() }));
  };
  return (
    <Dialog title={t.events.replayTitle(ids.length)} action={t.events.replayAction} onClose={onClose} onConfirm={confirm}>
      <p>{t.events.replayEffect}</p>
      <label class="choice"><input type="checkbox" checked={again} onChange={(event) => setAgain(event.currentTarget.checked)} /><span>{t.events.again}</span></label>
      <Field label={t.reason} hint={t.reasonHint}>
        <input value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}
