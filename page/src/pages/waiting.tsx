import { useState } from "preact/hooks";
import type { AwaitedSignalRow, SignalRow, WaitingList, WaitingRow } from "../api-flows.ts";
import type { Rows } from "../api.ts";
import { ActionDialog } from "../components/bulk-bar.tsx";
import { Empty, Loaded } from "../components/empty.tsx";
import { PageLink } from "../components/link.tsx";
import { SignalDialog } from "../components/signal-dialog.tsx";
import { StateBadge } from "../components/state.tsx";
import { Ago, Clock, Since } from "../components/time.tsx";
import { count, shortId } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { useRowKeys } from "../row-keys.ts";
import { canOperate, router } from "../session.ts";
import { useView } from "../view.ts";

/** The end of the name of a source whose tasks run batches. */
const COORDINATOR = ":batch";

export function WaitingPage() {
  const flow = router.location.value.query.get("flow") ?? "";
  const { data, error, reload } = useView<WaitingList>("/waiting", { flow, limit: 100 }, {
    watch: "watch=tasks", on: ["transitions"], pause: 1000, load: 10, every: 5000,
  });
  const [signalled, signal] = useState<WaitingRow | null>(null);
  const [cancelled, cancel] = useState<WaitingRow | null>(null);
  const current = useRowKeys((data.value?.items ?? []).map(({ uuid }) => pathOf("tasks", uuid)));
  return (
    <div class="stack">
      <header class="page-head">
        <h1>{t.pages.waiting}</h1>
        {flow && <><span class="hint">{t.ofFlow(shortId(flow))}</span><PageLink class="button" to={pathOf("waiting")}>{t.allWaiting}</PageLink></>}
      </header>
      <Loaded data={data.value} error={error.value}>
        {({ items, more, signals }) => (
          <>
            {items.length === 0
              ? <Empty icon="waiting" title={t.empty.waiting} text={t.empty.waitingText} code={t.empty.waitingCode} />
              : (
                <section class="card">
                  <Table rows={items} current={current} onSignal={signal} onCancel={cancel} />
                  {more && <p class="hint">{t.moreWaiting(items.length)}</p>}
                </section>
              )}
            {signals.length > 0 && <Signals rows={signals} />}
          </>
        )}
      </Loaded>
      {signalled && <SignalDialog row={signalled} onClose={() => signal(null)} onDone={() => reload(true)} />}
      {cancelled && <ActionDialog action="cancel" uuids={[cancelled.uuid]} onClose={() => cancel(null)} onDone={() => reload(true)} />}
    </div>
  );
}

interface TableProps { rows: readonly WaitingRow[]; current: number; onSignal: (row: WaitingRow) => void; onCancel: (row: WaitingRow) => void }

function Table({ rows, current, onSignal, onCancel }: TableProps) {
  return (
    <table class="rows tall cards">
      <thead>
        <tr>
          <th class="state-column">{t.columns.state}</th><th>{t.columns.task}</th><th>{t.columns.waitsFor}</th>
          <th class="time">{t.columns.began}</th><th class="time">{t.columns.until}</th><th class="actions">{t.columns.actions}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, i) => (
          <tr key={row.uuid} class={i === current ? "current" : ""}>
            <td class="state-column"><StateBadge state="waiting" /></td>
            <td class="main"><PageLink to={pathOf("tasks", row.uuid)}>{row.label || row.source}</PageLink> <code class="hint">{row.short_id}</code></td>
            <td>{row.signals.length > 0 ? t.forSignals(row.signals) : <ForTasks row={row} />}</td>
            <td class="time" data-name={t.columns.began}><Since at={row.since} /></td>
            <td class="time" data-name={t.columns.until}><Clock at={row.until} /></td>
            <td class="actions">
              {canOperate.value && row.signals.length > 0 && <button onClick={() => onSignal(row)}>{t.signalButton}</button>}
              <PageLink class="button" to={pathOf("tasks", row.uuid)}>{t.whyButton}</PageLink>
              {canOperate.value && <button onClick={() => onCancel(row)}>{t.cancel}</button>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function ForTasks({ row }: { row: WaitingRow }) {
  if (row.source.endsWith(COORDINATOR)) return <PageLink to={pathOf("batches", row.uuid)}>{t.nextPart}</PageLink>;
  const text = t.forTasks(count(Math.max(0, row.needed - row.reached)), count(row.needed));
  if (!row.flow) return <>{text}</>;
  return <>{text} <PageLink to={pathOf("flows", row.flow)}>{t.ofFlow(shortId(row.flow))}</PageLink></>;
}

/** The kept signals, of the names that tasks wait for first. */
function Signals({ rows }: { rows: readonly AwaitedSignalRow[] }) {
  const [shown, show] = useState("");
  return (
    <section class="card">
      <div class="card-head"><h2>{t.keptSignals}</h2></div>
      <table class="rows cards">
        <thead><tr><th>{t.columns.name}</th><th class="number">{t.states.waiting}</th><th class="number">{t.kept}</th><th class="time">{t.oldest}</th><th class="actions">{t.columns.actions}</th></tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <td class="main">{row.name}</td>
              <td class="number" data-name={t.states.waiting}>{count(row.waiting)}</td>
              <td class="number" data-name={t.kept}>{count(row.kept)}</td>
              <td class="time" data-name={t.oldest}><Ago at={row.oldest} /></td>
              <td class="actions">{row.kept > 0 && <button aria-expanded={shown === row.name} onClick={() => show(shown === row.name ? "" : row.name)}>{t.payloads}</button>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {shown && <Kept key={shown} name={shown} />}
    </section>
  );
}

function Kept({ name }: { name: string }) {
  const { data, error } = useView<Rows<SignalRow>>(`/signals/${encodeURIComponent(name)}`, {}, { watch: "watch=tasks", on: [] });
  return (
    <Loaded data={data.value} error={error.value} rows={2}>
      {({ items }) => (
        <ul class="plain">
          {items.map((row) => <li key={row.id}><Ago at={row.at} /> <code>{JSON.stringify(row.payload)}</code></li>)}
        </ul>
      )}
    </Loaded>
  );
}
