import { Fragment } from "preact";
import { useState } from "preact/hooks";
import type { Rows, WorkerRow } from "../api.ts";
import { Empty, Loaded } from "../components/empty.tsx";
import { Icon } from "../components/icon.tsx";
import { PageLink } from "../components/link.tsx";
import { Figure } from "../components/source-table.tsx";
import { Sparkline } from "../components/sparkline.tsx";
import { Badge } from "../components/state.tsx";
import { Clock, Since } from "../components/time.tsx";
import { age, bytes, clock, count, duration, parseTime } from "../format.ts";
import { useListKeys } from "../list-keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { now, zone } from "../session.ts";
import { useView } from "../view.ts";

/** ms by which the clocks of worker and store may differ without a mark; as `doctor` has it. */
const MAX_CLOCK_OFFSET = 1000;
/** ms by which an event loop may be late without a mark. */
const MAX_LAG = 250;
const COLUMNS = 9;

export function WorkersPage() {
  const { data, error } = useView<Rows<WorkerRow>>("/workers", {}, {
    watch: "watch=overview", on: ["invalidate", "rates"], invalidatedBy: ["workers"], pause: 1000, every: 2000,
  });
  useListKeys();
  const live = data.value?.items.filter(({ alive }) => alive) ?? [];
  const releases = new Set(live.map(({ release }) => release));
  return (
    <div class="stack">
      <header class="page-head">
        <h1>{t.pages.workers}</h1><span class="hint">{data.value && t.workers(live.length)}</span>
        {releases.size > 1 && <span class="marks"><Badge kind="warning">{t.worker.mixed(releases.size)}</Badge></span>}
      </header>
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (
          <>
            {live.length === 0 && <Empty icon="workers" title={t.noWorkers} text={t.empty.workersText} code={t.noWorkersCode} />}
            {items.length > 0 && <section class="card"><Table rows={items} /></section>}
          </>
        )}
      </Loaded>
    </div>
  );
}

function Table({ rows }: { rows: readonly WorkerRow[] }) {
  const [open, setOpen] = useState("");
  return (
    <table class="rows cards">
      <thead>
        <tr>
          <th class="state-column">{t.columns.state}</th><th>{t.columns.worker}</th><th class="busy-column">{t.columns.busy}</th>
          <th class="trend">{t.worker.donePerMinute}</th><th class="number">{t.worker.loopLag}</th><th class="number">{t.worker.memory}</th>
          <th>{t.columns.release}</th><th class="time">{t.columns.up}</th><th>{t.columns.sources}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <Fragment key={row.id}>
            <Row row={row} isOpen={open === row.id} onOpen={() => setOpen(open === row.id ? "" : row.id)} />
            {(row.longest.length > 0 || row.lost) && (
              <tr class={row.alive ? "runs-line" : "runs-line gone"}><td colSpan={COLUMNS}>{row.lost ? <Lost row={row} /> : <Longest row={row} />}</td></tr>
            )}
            {open === row.id && <tr class="detail"><td colSpan={COLUMNS}><Detail row={row} /></td></tr>}
          </Fragment>
        ))}
      </tbody>
    </table>
  );
}

function Row({ row, isOpen, onOpen }: { row: WorkerRow; isOpen: boolean; onOpen: () => void }) {
  const lag = row.loop_lag_ms;
  return (
    <tr class={row.alive ? "" : "gone"}>
      <td class="state-column">
        <span class={`state ${row.alive ? "state-succeeded" : "state-cancelled"}`}><Icon name={row.alive ? "succeeded" : "cancelled"} /><span>{row.alive ? t.worker.alive : t.worker.died}</span></span>
      </td>
      <td class="main">
        <button class="link" data-open aria-expanded={isOpen} onClick={onOpen}><Icon name={isOpen ? "down" : "right"} />{row.host}</button>
        <span class="hint"> {t.pid(row.pid)} <code>{row.short_id}</code></span><Marks row={row} />
      </td>
      <td class="busy-column" data-name={t.columns.busy}>{row.alive ? <Busy row={row} /> : <span class="none">{t.none}</span>}</td>
      <td class="trend" data-name={t.worker.donePerMinute}>
        {row.done.some((n) => n > 0) && <Sparkline values={row.done} kind="bars" />}
        <span class="hint">{row.done_per_minute === null ? t.none : count(Math.round(row.done_per_minute))}</span>
      </td>
      <Figure name={t.worker.loopLag} value={lag === null ? t.none : duration(lag)} zero={lag === null} bad={lag !== null && lag > MAX_LAG} />
      <Figure name={t.worker.memory} value={row.rss === null ? t.none : bytes(row.rss)} zero={row.rss === null} />
      <td data-name={t.columns.release}><code>{row.release || row.version}</code></td>
      <td class="time" data-name={t.columns.up}><Since at={row.since} /></td>
      <td class="source"><SourceNames names={row.sources} /></td>
    </tr>
  );
}

/** What is wrong with a live worker. */
function Marks({ row }: { row: WorkerRow }) {
  const offset = row.clock_offset_ms;
  return (
    <span class="marks">
      {offset !== null && Math.abs(offset) > MAX_CLOCK_OFFSET && <Badge kind="error">{t.worker.clockAhead(offset)}</Badge>}
      {row.data_lost !== null && <Badge kind="error">{t.worker.dataLost}</Badge>}
    </span>
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

function Longest({ row }: { row: WorkerRow }) {
  const rest = row.running - row.longest.length;
  return (
    <span class="hint">
      {t.worker.runs}
      {row.longest.map((task) => {
        const began = parseTime(task.started_at);
        return (
          <span key={task.uuid}>
            {" "}<PageLink to={pathOf("tasks", task.uuid)}>{task.label || task.short_id}</PageLink>{" "}
            ({t.worker.taskOf(task.source, began === null ? t.none : age(now.value - began))})
          </span>
        );
      })}
      {rest > 0 && ` ${t.worker.andMore(rest)}`}
    </span>
  );
}

/** When a dead worker was seen, and what became of its tasks. */
function Lost({ row }: { row: WorkerRow }) {
  const { requeued = 0, failed = 0, held = 0 } = row.lost ?? {};
  const seen = parseTime(row.seen);
  const parts = [
    seen === null ? "" : t.worker.seen(clock(seen, now.value, zone.value)),
    requeued > 0 ? t.worker.requeued(requeued) : "",
    failed > 0 ? t.worker.failed(failed) : "",
    held > 0 ? t.worker.held(held) : "",
    requeued + failed + held === 0 ? t.worker.nothingLost : "",
  ];
  return <span class="hint">{parts.filter((part) => part !== "").join(" · ")}</span>;
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

/** What it can run, in full. */
function Detail({ row }: { row: WorkerRow }) {
  return (
    <dl class="facts-list">
      <div><dt>{t.workerId}</dt><dd><code>{row.id}</code></dd></div>
      <div><dt>{t.columns.began}</dt><dd><Clock at={row.since} /></dd></div>
      <div><dt>{t.pools}</dt><dd>{Object.entries(row.slots).map(([pool, n]) => t.poolSlots(pool, count(n))).join(", ")}</dd></div>
      <div><dt>{t.columns.sources}</dt><dd>{row.sources.map((name) => <PageLink key={name} class="tag" to={pathOf("sources", name)}>{name}</PageLink>)}</dd></div>
      {row.schedules.length > 0 && <div><dt>{t.pages.schedules}</dt><dd>{row.schedules.join(", ")}</dd></div>}
    </dl>
  );
}
