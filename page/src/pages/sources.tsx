import type { Rows, SourceLimitRow, SourceRow } from "../api.ts";
import { Empty, Loaded } from "../components/empty.tsx";
import { PageLink } from "../components/link.tsx";
import { PauseButton } from "../components/pause-button.tsx";
import { running, SourceMarks, SourceTable } from "../components/source-table.tsx";
import { Ago } from "../components/time.tsx";
import { count, duration, rate } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { canOperate, router } from "../session.ts";
import { useView } from "../view.ts";

export function SourcesPage() {
  const { data, error } = useView<Rows<SourceRow>>("/sources", {}, {
    watch: "watch=overview", on: ["counts", "rates", "transitions", "invalidate"], pause: 1000, every: 5000,
  });
  return (
    <div class="stack">
      <header class="page-head"><h1>{t.pages.sources}</h1><span class="hint">{data.value && count(data.value.items.length)}</span></header>
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (items.length === 0
          ? <Empty icon="sources" title={t.empty.app} text={t.empty.appText} code={t.empty.appCode} />
          : <section class="card"><SourceTable rows={items} /></section>)}
      </Loaded>
    </div>
  );
}

export function SourcePage() {
  const { id } = router.location.value;
  const { data, error, reload } = useView<SourceRow>(`/sources/${encodeURIComponent(id)}`, {}, {
    watch: "watch=overview", on: ["counts", "rates", "transitions", "invalidate"], pause: 1000, every: 5000,
  });
  return (
    <Loaded data={data.value} error={error.value}>
      {(source) => (
        <div class="stack">
          <header class="page-head">
            <h1>{source.name}</h1>
            <SourceMarks row={source} />
            <span class="grow" />
            {canOperate.value && <PauseButton source={source} onDone={() => reload(true)} />}
          </header>
          <Figures source={source} />
          {(source.paused || source.paused_keys.length > 0) && <Pauses source={source} />}
          <section class="card">
            <div class="card-head"><h2>{t.limits}</h2></div>
            {source.limits.length === 0 ? <p class="hint pad">{t.noLimits}</p> : <ul class="plain">{source.limits.map((limit) => <li key={limit.name}>{limitText(limit)} <span class="hint">{t.limitBy(limit.by)}</span></li>)}</ul>}
          </section>
          <p class="link-row">
            <PageLink class="button" to={pathOf("tasks", "", { q: `source:${source.name}` })}>{t.itsTasks}</PageLink>
            <PageLink class="button" to={pathOf("tasks", "", { q: `source:${source.name} state:failed` })}>{t.itsFailures}</PageLink>
          </p>
        </div>
      )}
    </Loaded>
  );
}

function limitText(limit: SourceLimitRow): string {
  const parts = [];
  if (limit.cap !== null) parts.push(t.atOnce(count(limit.cap)));
  if (limit.rate !== null) parts.push(t.rateLimit(rate(limit.rate)));
  return `${limit.name}: ${parts.join(" · ")}`;
}

function Figures({ source }: { source: SourceRow }) {
  const link = (state: string) => pathOf("tasks", "", { q: `source:${source.name} state:${state}` });
  const numbers: [string, string, string?][] = [
    [t.states.ready, count(source.ready), link("ready")],
    [t.parked, count(source.parked)],
    [t.states.running, running(source), link("running")],
    [t.states.scheduled, count(source.scheduled), link("scheduled")],
    [t.states.waiting, count(source.waiting), link("waiting")],
    [t.states.failed, count(source.failed), link("failed")],
    [t.columns.p50, source.p50_ms === null ? t.none : duration(source.p50_ms)],
    [t.columns.p95, source.p95_ms === null ? t.none : duration(source.p95_ms)],
    [t.columns.done, source.rates ? rate(source.rates.done) : t.none],
    [t.columns.workers, count(source.workers)],
  ];
  return (
    <dl class="tiles">
      {numbers.map(([name, value, to]) => (
        <div class="tile" key={name}><dt>{to ? <PageLink to={to}>{name}</PageLink> : name}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}

function Pauses({ source }: { source: SourceRow }) {
  const all = [...(source.paused ? [source.paused] : []), ...source.paused_keys];
  return (
    <section class="card">
      <div class="card-head"><h2>{t.pauses}</h2></div>
      <ul class="plain">
        {all.map((pause) => (
          <li key={pause.key ?? ""}><strong>{pause.key ?? t.wholeSource}</strong> {pause.reason} <span class="hint">{pause.since && <Ago at={pause.since} />}</span></li>
        ))}
      </ul>
    </section>
  );
}
