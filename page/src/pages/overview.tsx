import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Overview } from "../api.ts";
import { Attention } from "../components/attention.tsx";
import { Empty, Loaded } from "../components/empty.tsx";
import { PageLink } from "../components/link.tsx";
import { SourceTable } from "../components/source-table.tsx";
import { Sparkline } from "../components/sparkline.tsx";
import { TimeCharts } from "../components/time-charts.tsx";
import { count, duration, rate } from "../format.ts";
import { useListKeys } from "../list-keys.ts";
import { countsByState, type CountsMessage } from "../live.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { failedCount, isHeld, onMessage } from "../session.ts";
import { useView } from "../view.ts";

const COUNTS_LAST = 3000;
/** The end of the name of a source whose tasks run batches. */
const COORDINATOR = ":batch";

export function OverviewPage() {
  const { data, error, reload } = useView<Overview>("/overview", {}, {
    watch: "watch=overview", on: ["counts", "rates", "attention", "invalidate"],
    invalidatedBy: ["limits", "schedules", "workers", "sources", "failures"], pause: 1000, every: 5000,
  });
  const counts = useStreamedCounts(data.value);
  const found = data.value && counts ? { ...data.value, counts } : data.value;
  const failed = found ? found.counts.failed ?? 0 : null;
  useListKeys();
  useEffect(() => {
    if (failed !== null) failedCount.value = failed;
  }, [failed]);
  const onDone = () => reload(true);
  return (
    <Loaded data={found} error={error.value}>
      {(overview) => (
        <div class="stack">
          <h1 class="hidden-text">{t.pages.overview}</h1>
          <Tiles overview={overview} />
          <Attention overview={overview} onDone={onDone} />
          <TimeCharts history={overview.history} now={Date.parse(overview.now)} />
          {overview.sources.length > 0
            ? <section class="card"><div class="card-head"><h2>{t.sourcesWorstFirst}</h2></div><SourceTable rows={overview.sources} onDone={onDone} /></section>
            : <Empty icon="sources" title={t.empty.app} text={t.empty.appText} code={t.empty.appCode} />}
        </div>
      )}
    </Loaded>
  );
}

/** Counts of the stream are newer than those of the API, until an answer that comes much later. */
function useStreamedCounts(answer: Overview | null): Record<string, number> | null {
  const streamed = useSignal<{ counts: Record<string, number>; at: number } | null>(null);
  useEffect(() => onMessage((name, message) => {
    if (name === "reset" || name === "store") streamed.value = null;
    else if (name === "counts" && !isHeld.value) streamed.value = { counts: countsByState(message as CountsMessage), at: Date.now() };
  }), []);
  useEffect(() => {
    if (streamed.value && Date.now() - streamed.value.at > COUNTS_LAST) streamed.value = null;
  }, [answer]);
  return streamed.value?.counts ?? null;
}

function Tiles({ overview }: { overview: Overview }) {
  const { counts, figures, flows, rates, series: { series }, sources } = overview;
  const seconds = (value: number | null) => (value === null ? t.none : duration(value * 1000));
  const sum = (values: readonly (number | null)[] = []) => values.reduce<number>((total, value) => total + (value ?? 0), 0);
  const failed = sum(series.failed);
  const coordinators = sources.filter(({ name }) => name.endsWith(COORDINATOR));
  const batches = coordinators.reduce((total, row) => total + row.running + row.waiting, 0);
  return (
    <dl class="tiles wrapped">
      <Tile name={t.tiles.done} value={rate(rates.done)} unit={t.perSecond} history={overview.history} />
      <Tile name={t.tiles.latency} value={seconds(figures.latency_p95)} history={known(series.latency_p95)} />
      <Tile name={t.tiles.oldest} value={seconds(figures.oldest_ready)} />
      <Tile name={t.tiles.lateness} value={seconds(figures.lateness_p99)} history={known(series.lateness_p99)} />
      <Tile name={t.tiles.failedHour} value={count(failed)} history={known(series.failed)} to={pathOf("failed", "", { since: "1h" })} kind={failed > 0 ? "bad" : ""} />
      <Tile name={t.tiles.retriedHour} value={count(sum(series.retried))} history={known(series.retried)} />
      {(["ready", "running", "scheduled", "waiting"] as const).map((state) => (
        <Tile key={state} name={t.states[state]} value={count(counts[state] ?? 0)} to={pathOf("tasks", "", { q: `state:${state}` })} />
      ))}
      <Tile name={t.states.failed} value={count(counts.failed ?? 0)} to={pathOf("failed")} kind={counts.failed ? "bad" : ""} />
      {(flows.n > 0 || !flows.exact) && <Tile name={t.tiles.flows} value={flows.exact ? count(flows.n) : t.atLeast(flows.n)} to={pathOf("flows", "", { state: "alive" })} />}
      {coordinators.length > 0 && <Tile name={t.tiles.batches} value={count(batches)} to={pathOf("batches")} />}
    </dl>
  );
}

/** Of a series: minutes without a live worker, and those in which nothing was timed, have no value. */
function known(values: readonly (number | null)[] = []): readonly number[] {
  return values.map((value) => value ?? 0);
}

interface TileProps { name: string; value: string; unit?: string; history?: readonly number[]; to?: string; kind?: string }

function Tile({ name, value, unit, history, to, kind = "" }: TileProps) {
  return (
    <div class={`tile ${kind} ${history ? "with-chart" : ""}`}>
      <dt>{to === undefined ? name : <PageLink to={to}>{name}</PageLink>}</dt>
      <dd>{value}{unit && <small>{unit}</small>}</dd>
      {history && <Sparkline values={history} />}
    </div>
  );
}
