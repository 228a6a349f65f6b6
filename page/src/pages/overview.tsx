import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ApiError, type AttentionRow, type Overview } from "../api.ts";
import { Chart } from "../components/chart.tsx";
import { Empty, Loaded } from "../components/empty.tsx";
import { Icon } from "../components/icon.tsx";
import { PageLink } from "../components/link.tsx";
import { SourceTable } from "../components/source-table.tsx";
import { Sparkline } from "../components/sparkline.tsx";
import { Ago } from "../components/time.tsx";
import { count, duration, rate } from "../format.ts";
import { countsByState, type CountsMessage } from "../live.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, canOperate, failedCount, isHeld, notify, onMessage, status } from "../session.ts";
import { useView } from "../view.ts";

const COUNTS_LAST = 3000;

export function OverviewPage() {
  const { data, error, reload } = useView<Overview>("/overview", {}, {
    watch: "watch=overview", on: ["counts", "rates", "transitions", "attention", "invalidate"], pause: 1000, every: 5000,
  });
  const counts = useStreamedCounts(data.value);
  const found = data.value && counts ? { ...data.value, counts } : data.value;
  const failed = found ? found.counts.failed ?? 0 : null;
  useEffect(() => {
    if (failed !== null) failedCount.value = failed;
  }, [failed]);
  return (
    <Loaded data={found} error={error.value}>
      {(overview) => (
        <div class="stack">
          <h1 class="hidden-text">{t.pages.overview}</h1>
          <Tiles overview={overview} />
          <Attention overview={overview} onDone={() => reload(true)} />
          <Throughput overview={overview} />
          {overview.sources.length > 0
            ? <section class="card"><div class="card-head"><h2>{t.sourcesWorstFirst}</h2></div><SourceTable rows={overview.sources} /></section>
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
  const { counts, figures, rates } = overview;
  const seconds = (value: number | null) => (value === null ? t.none : duration(value * 1000));
  return (
    <dl class="tiles">
      <Tile name={t.tiles.done} value={rate(rates.done)} unit={t.perSecond} history={overview.history} />
      {figures.latency_p95 !== null && <Tile name={t.tiles.latency} value={seconds(figures.latency_p95)} />}
      {figures.oldest_ready !== null && <Tile name={t.tiles.oldest} value={seconds(figures.oldest_ready)} />}
      {figures.lateness_p99 !== null && <Tile name={t.tiles.lateness} value={seconds(figures.lateness_p99)} />}
      {(["ready", "running", "scheduled", "waiting"] as const).map((state) => (
        <Tile key={state} name={t.states[state]} value={count(counts[state] ?? 0)} to={pathOf("tasks", "", { q: `state:${state}` })} />
      ))}
      <Tile name={t.states.failed} value={count(counts.failed ?? 0)} to={pathOf("failed")} kind={counts.failed ? "bad" : ""} />
    </dl>
  );
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

const SEVERITY_ICONS = { error: "failed", warning: "warning", info: "info" } as const;

function Attention({ overview, onDone }: { overview: Overview; onDone: () => void }) {
  const { attention, more_attention: more } = overview;
  const hasWorkers = (status.value?.workers ?? 1) > 0;
  const facts = attention.length === 0 ? factsOf(overview) : [];
  if (attention.length === 0 && facts.length === 0 && hasWorkers) {
    return <section class="card calm"><Icon name="succeeded" /><p><strong>{t.onTheDot}</strong> {t.onTheDotText}</p></section>;
  }
  return (
    <section class="card">
      <div class="card-head"><h2>{t.attention}</h2></div>
      <ul class="attention">
        {!hasWorkers && (
          <li class="warning"><Icon name="warning" /><span class="text">{t.noWorkers}</span><code>{t.noWorkersCode}</code></li>
        )}
        {facts.map(({ text, to, severity }) => (
          <li key={text} class={severity}><Icon name={SEVERITY_ICONS[severity]} /><span class="text">{text}</span><PageLink class="button" to={to}>{t.show}</PageLink></li>
        ))}
        {attention.map((item) => <AttentionItem key={item.kind + item.text} item={item} onDone={onDone} />)}
        {more > 0 && <li class="more">{t.moreAttention(more)}</li>}
      </ul>
    </section>
  );
}

/** What the numbers of the overview say by themselves, if the server names nothing. */
function factsOf({ counts, sources }: Overview): { text: string; to: string; severity: "error" | "warning" }[] {
  const failed = counts.failed ?? 0;
  const unserved = sources.filter((row) => row.workers === 0 && row.ready + row.parked > 0);
  const paused = sources.filter((row) => row.paused !== null || row.paused_keys.length > 0);
  return [
    ...unserved.map((row) => ({ text: t.unserved(row.name, row.ready + row.parked), to: pathOf("sources", row.name), severity: "error" as const })),
    ...paused.map((row) => ({ text: t.isPaused(row.name, row.paused?.reason ?? ""), to: pathOf("sources", row.name), severity: "warning" as const })),
    ...(failed > 0 ? [{ text: t.failedKept(failed), to: pathOf("failed"), severity: "error" as const }] : []),
  ].slice(0, 5);
}

function AttentionItem({ item, onDone }: { item: AttentionRow; onDone: () => void }) {
  const { action } = item;
  const isView = action?.method === "GET";
  const run = async () => {
    if (!action) return;
    try {
      await api.send(action.method as "POST", action.path, action.body ?? {});
      notify("done", t.done(action.label));
      onDone();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      notify("error", error.message);
    }
  };
  return (
    <li class={item.severity}>
      <Icon name={SEVERITY_ICONS[item.severity]} />
      <span class="text">{item.text}</span>
      <span class="since">{item.since && <Ago at={item.since} />}</span>
      {item.group && <PageLink class="button" to={pathOf("tasks", "", { q: `group:${item.group}` })}>{t.show}</PageLink>}
      {!item.group && item.source && <PageLink class="button" to={pathOf("sources", item.source)}>{t.show}</PageLink>}
      {action && !isView && canOperate.value && <button onClick={() => void run()}>{action.label}</button>}
    </li>
  );
}

function Throughput({ overview }: { overview: Overview }) {
  const { history } = overview;
  const end = Math.floor(Date.parse(overview.now) / 1000);
  const at = useMemo(() => history.map((_, i) => end - history.length + 1 + i), [end, history]);
  const lines = useMemo(() => [{ name: t.tiles.done, color: "--c-running", values: history }], [history]);
  const marks = useMemo(() => overview.marks.map((mark) => ({ name: mark.release, at: Date.parse(mark.at) / 1000 })), [overview.marks]);
  if (history.length < 2) return null;
  return <Chart title={t.throughput} at={at} lines={lines} marks={marks} />;
}
