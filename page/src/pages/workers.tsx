import type { Rows, WorkerRow } from "../api.ts";
import { Empty, Loaded } from "../components/empty.tsx";
import { Icon } from "../components/icon.tsx";
import { PageLink } from "../components/link.tsx";
import { Since } from "../components/time.tsx";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { useView } from "../view.ts";

export function WorkersPage() {
  const { data, error } = useView<Rows<WorkerRow>>("/workers", {}, {
    watch: "watch=overview", on: ["invalidate", "rates"], pause: 1000, every: 2000,
  });
  return (
    <div class="stack">
      <header class="page-head"><h1>{t.pages.workers}</h1><span class="hint">{data.value && t.workers(data.value.items.filter(({ alive }) => alive).length)}</span></header>
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (items.length === 0
          ? <Empty icon="workers" title={t.noWorkers} text={t.empty.workersText} code={t.noWorkersCode} />
          : <section class="card"><Table rows={items} /></section>)}
      </Loaded>
    </div>
  );
}

function Table({ rows }: { rows: readonly WorkerRow[] }) {
  return (
    <table class="rows cards">
      <thead>
        <tr>
          <th class="state-column">{t.columns.state}</th><th>{t.columns.worker}</th><th class="busy-column">{t.columns.busy}</th>
          <th>{t.columns.release}</th><th class="time">{t.columns.up}</th><th>{t.columns.sources}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.id} class={row.alive ? "" : "gone"}>
            <td class="state-column">
              <span class={`state ${row.alive ? "state-succeeded" : "state-cancelled"}`}><Icon name={row.alive ? "succeeded" : "cancelled"} /><span>{row.alive ? t.alive : t.died}</span></span>
            </td>
            <td class="main">{row.host}<span class="hint"> {t.pid(row.pid)} <code>{row.short_id}</code></span></td>
            <td class="busy-column" data-name={t.columns.busy}><Busy row={row} /></td>
              <td data-name={t.columns.release}><code>{row.release || row.version}</code></td>
            <td class="time" data-name={t.columns.up}><Since at={row.since} /></td>
            <td class="source"><SourceNames names={row.sources} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Busy({ row }: { row: WorkerRow }) {
  const slots = Object.values(row.slots).reduce((sum, n) => sum + n, 0);
  return (
    <span class="progress">
      <progress value={slots > 0 ? row.running / slots : 0} max={1} aria-label={t.columns.busy} />
      <span>{t.ofLimit(count(row.running), count(slots))}</span>
    </span>
  );
}

function SourceNames({ names }: { names: readonly string[] }) {
  const shown = names.slice(0, 3);
  return (
    <>
      {shown.map((name) => <PageLink key={name} class="tag" to={pathOf("sources", name)}>{name}</PageLink>)}
      {names.length > shown.length && <span class="hint" title={names.join(", ")}>{t.more(names.length - shown.length)}</span>}
    </>
  );
}
