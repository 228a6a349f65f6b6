/** The recorded life of a task as one line, and as a table. Short parts keep a width that can be seen and pressed. */
import { useState } from "preact/hooks";
import type { Segment } from "../api.ts";
import { clock, duration, preciseClock, utc } from "../format.ts";
import { t } from "../messages.ts";
import { now, zone } from "../session.ts";
import { type Part, partsOf } from "../timeline-parts.ts";

export function Timeline({ segments }: { segments: readonly Segment[] }) {
  const [isTable, showTable] = useState(false);
  const parts = partsOf(segments, now.value);
  const kinds = [...new Set(parts.map(({ kind }) => kind))];
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
          <div key={i} class={`seg seg-${part.kind}`} style={{ flexGrow: part.share * 1000 }} title={`${name(part)}\n${utc(part.from)}`}>
            {part.share > 0.08 && <span>{name(part)}</span>}
          </div>
        ))}
      </div>
      <div class="track-ends">
        <span>{first && clock(first.from, now.value, zone.value)}</span>
        <span>{last && (last.isOpen ? t.nowWord : clock(last.to, now.value, zone.value))}</span>
      </div>
    </div>
  );
}

function kindName({ kind, attempt }: Part): string {
  return kind === "running" ? t.attemptNumber(attempt) : t.segments[kind];
}

function name(part: Part): string {
  return `${kindName(part)} ${duration(part.to - part.from)}${part.text ? `: ${part.text}` : ""}`;
}

function TimelineTable({ parts }: { parts: readonly Part[] }) {
  return (
    <table class="rows">
      <thead><tr><th>{t.columns.part}</th><th>{t.columns.from}</th><th class="number">{t.columns.duration}</th><th>{t.columns.worker}</th><th>{t.columns.note}</th></tr></thead>
      <tbody>
        {parts.map((part, i) => (
          <tr key={i}>
            <td>{kindName(part)}</td>
            <td>{preciseClock(part.from, zone.value)}</td>
            <td class="number">{duration(part.to - part.from)}</td>
            <td>{part.worker ?? ""}</td>
            <td>{part.text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
