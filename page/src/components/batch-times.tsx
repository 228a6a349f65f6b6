/** A batch in time: first result, the present, its end as it may be, its deadline; and how fast items arrive. */
import type { BatchDetail } from "../api-flows.ts";
import { arrivals, deadlineState, type Mark, marksOf } from "../batch-times.ts";
import { duration, parseTime, rate } from "../format.ts";
import { t } from "../messages.ts";
import { now } from "../session.ts";
import { Sparkline } from "./sparkline.tsx";
import { Badge } from "./state.tsx";

export function BatchTimes({ detail }: { detail: BatchDetail }) {
  const marks = marksOf(detail, now.value);
  const reached = marks.find(({ kind }) => kind === "now" || kind === "ended");
  return (
    <section class="card">
      <div class="card-head"><h2>{t.timeline}</h2></div>
      <div class="batch-times">
        <div class="batch-line" role="img" aria-label={marks.map(markText).join(", ")}>
          <span class="batch-reached" style={{ width: `${(reached?.share ?? 0) * 100}%` }} />
          {marks.map(({ kind, share }) => <span key={kind} class={`batch-mark mark-${kind}`} style={{ left: `${share * 100}%` }} />)}
        </div>
        <p class="batch-marks">{marks.map((mark) => <span key={mark.kind} class={`mark-key mark-${mark.kind}`}>{markText(mark)}</span>)}</p>
        <Arrivals detail={detail} />
      </div>
    </section>
  );
}

function markText({ kind, ms }: Mark): string {
  return t.batchMarks[kind](duration(ms));
}

function Arrivals({ detail }: { detail: BatchDetail }) {
  if (detail.parts.length === 0) return null;
  const begin = parseTime(detail.batch.started_at) ?? now.value;
  const values = arrivals(detail.parts, begin, parseTime(detail.batch.ended_at) ?? now.value);
  const label = t.arrivedPerSecond(rate(Math.max(...values)));
  return <p class="batch-arrivals"><span>{label}</span><Sparkline kind="bars" values={values} label={label} /></p>;
}

export function DeadlineBadge({ detail }: { detail: BatchDetail }) {
  const state = deadlineState(detail, now.value);
  if (state === null) return null;
  return <Badge kind={state === "onTrack" || state === "kept" ? "info" : "warning"}>{t.deadlineStates[state]}</Badge>;
}
