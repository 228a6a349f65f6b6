/** Charts of all sources or of one: the last minute as it happens, or up to 62 days from the figures of workers. */
import { useMemo } from "preact/hooks";
import type { ChartSeries } from "../api.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { RANGES, type Range, rangeOf, sinceOf, STEPS } from "../ranges.ts";
import { router } from "../session.ts";
import { useView } from "../view.ts";
import { Chart } from "./chart.tsx";
import { PageLink } from "./link.tsx";

const NAMES = "done,failed,latency_p50,latency_p95,depth";
const NONE: ChartSeries = { step: 0, at: [], series: {}, marks: [] };

interface TimeChartsProps {
  /** Of which all charts are; empty: all sources. */
  source?: string;
  /** Tasks that ended in each of the last seconds, up to `now`. */
  history: readonly number[];
  now: number;
}

export function TimeCharts({ source = "", history, now }: TimeChartsProps) {
  const range = rangeOf(router.location.value.query);
  return (
    <section class="charts" aria-label={t.charts}>
      <Ranges chosen={range} page={source === "" ? "overview" : "sources"} id={source} />
      {range === "live" ? <LiveChart history={history} now={now} /> : <SeriesCharts range={range} source={source} />}
    </section>
  );
}

function Ranges({ chosen, page, id }: { chosen: Range; page: string; id: string }) {
  return (
    <nav class="tabs small" aria-label={t.charts}>
      {RANGES.map((range) => <PageLink key={range} to={pathOf(page, id, { since: sinceOf(range) })} current={range === chosen}>{t.ranges[range]}</PageLink>)}
    </nav>
  );
}

function LiveChart({ history, now }: { history: readonly number[]; now: number }) {
  const at = useMemo(() => history.map((_, i) => Math.floor(now / 1000) - history.length + 1 + i), [history]);
  const lines = useMemo(() => [{ name: t.ended, color: "--c-running", values: history }], [history]);
  return <Chart title={t.endedPer(STEPS.live)} at={at} lines={lines} />;
}

/** Workers write their figures every ten seconds. */
function SeriesCharts({ range, source }: { range: Exclude<Range, "live">; source: string }) {
  const step = STEPS[range];
  const { data, error } = useView<ChartSeries>("/series", { names: NAMES, source, since: range, step }, {
    watch: "watch=overview", on: [], pause: 1000, every: step > 60 ? 60_000 : 10_000,
  });
  const found = data.value ?? NONE;
  const at = useMemo(() => found.at.map((moment) => Date.parse(moment) / 1000), [found]);
  const marks = useMemo(() => found.marks.map((mark) => ({ name: mark.release, at: Date.parse(mark.at) / 1000 })), [found]);
  const [ended, latency, depth] = useMemo(() => {
    const line = (name: string, key: string, color: string) => ({ name, color, values: found.series[key] ?? [] });
    return [
      [line(t.tiles.done, "done", "--c-running"), line(t.states.failed, "failed", "--c-failed")],
      [line(t.p50, "latency_p50", "--c-running"), line(t.p95, "latency_p95", "--c-paused")],
      [line(t.depth, "depth", "--c-ready")],
    ] as const;
  }, [found]);
  return (
    <>
      {error.value && data.value === null && <p class="trouble">{error.value.message}</p>}
      <div class="columns three">
        <Chart title={t.endedPer(step)} at={at} lines={ended} marks={marks} />
        <Chart title={t.latencyMs} at={at} lines={latency} marks={marks} />
        <Chart title={t.depthTitle} at={at} lines={depth} marks={marks} />
      </div>
    </>
  );
}
