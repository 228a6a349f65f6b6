/** The recorded life of a task as one line, and as a table. Short parts keep a width that can be seen and pressed. */
import { useState } from "preact/hooks";
import type { Segment } from "../api.ts";
import { clock, duration, parseTime, preciseClock, utc } from "../format.ts";
import { t } from "../messages.ts";
import { now, zone } from "../session.ts";

const SMALLEST = 0.02;

export interface Part { segment: Segment; from: number; to: number; share: number }

/** Widths that add up to one: by duration, but none below two per cent. */
export function partsOf(segments: readonly Segment[], present: number): Part[] {
  const spans = segments.map((segment) => {
    const from = parseTime(segment.from) ?? present;
    return { segment, from, to: Math.max(from, parseTime(segment.to) ?? present) };
  });
  const total = spans.reduce((sum, { from, to }) => sum + (to - from), 0);
  const raw = spans.map(({ from, to }) => Math.max(SMALLEST, total > 0 ? (to - from) / total : 1));
  const sum = raw.reduce((all, share) => all + share, 0);
  return spans.map((span, i) => ({ ...span, share: (raw[i] ?? 0) / sum }));
}

export function Timeline({ segments }: { segments: readonly Segment[] }) {
  const [isTable, showTable] = useState(false);
  const parts = partsOf(segments, now.value);
  const kinds = [...new Set(segments.map(({ kind }) => kind))];
  return (
    <section class="card">
      <div class="card-head">
        <h2>{t.timeline}</h2>
        <span class="legend">{kinds.map((kind) => <span key={kind} class={`key seg-${kind}`}>{t.segments[kind]}</span>)}</span>
        <button class="quiet" aria-pressed={isTable} onClick={() => showTable(!isTable)}>{isTable ? t.asChart : t.asTable}</button>
      </div>
      {isTable ? <TimelineTable parts={parts} /> : <Track parts={parts} />}
    </section>
  );
}

function Track({ parts }: { parts: readonly Part[] }) {
  const first = parts[0];
  const last = parts.at(-1);
  return (
    <div class="timeline">
      <div class="track" role="img" aria-label={parts.map((part) => name(part)).join(", ")}>
        {parts.map((part, i) => (
          <div key={i} class={`seg seg-${part.segment.kind}`} style={{ flexGrow: part.share * 1000 }} title={`${name(part)}\n${utc(part.from)}`}>
            {part.share > 0.08 && <span>{name(part)}</span>}
          </div>
        ))}
      </div>
      <div class="track-ends">
        <span>{first && clock(first.from, now.value, zone.value)}</span>
        <span>{last && (last.segment.to === null ? t.nowWord : clock(last.to, now.value, zone.value))}</span>
      </div>
    </div>
  );
}

function name({ segment, from, to }: Part): string {
  const what = segment.kind === "running" ? t.attemptNumber(segment.attempt) : t.segments[segment.kind];
  return `${what} ${duration(to - from)}${segment.text ? `: ${segment.text}` : ""}`;
}

function TimelineTable({ parts }: { parts: readonly Part[] }) {
  return (
    <table class="rows">
      <thead><tr><th>{t.columns.part}</th><th>{t.columns.from}</th><th class="number">{t.columns.duration}</th><th>{t.columns.worker}</th><th>{t.columns.note}</th></tr></thead>
      <tbody>
        {parts.map(({ segment, from, to }, i) => (
          <tr key={i}>
            <td>{segment.kind === "running" ? t.attemptNumber(segment.attempt) : t.segments[segment.kind]}</td>
            <td>{preciseClock(from, zone.value)}</td>
            <td class="number">{duration(to - from)}</td>
            <td>{segment.worker ?? ""}</td>
            <td>{segment.text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
