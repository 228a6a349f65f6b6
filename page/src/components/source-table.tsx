/** Sources with their depth, pace and limits: on Overview and on Sources. */
import type { SourceRow } from "../api.ts";
import { count, duration, rate } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { PageLink } from "./link.tsx";
import { Badge } from "./state.tsx";

export function SourceTable({ rows }: { rows: readonly SourceRow[] }) {
  return (
    <table class="rows cards">
      <thead>
        <tr>
          <th>{t.columns.source}</th>
          <th class="number">{t.columns.ready}</th>
          <th class="number">{t.columns.running}</th>
          <th class="number">{t.columns.scheduled}</th>
          <th class="number">{t.columns.failed}</th>
          <th class="number">{t.columns.done}</th>
          <th class="number">{t.columns.p95}</th>
          <th class="number">{t.columns.workers}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.name}>
            <td class="main">
              <PageLink to={pathOf("sources", row.name)}>{row.name}</PageLink>
              <SourceMarks row={row} />
            </td>
            <Figure name={t.columns.ready} value={count(row.ready + row.parked)} zero={row.ready + row.parked === 0} />
            <Figure name={t.columns.running} value={running(row)} zero={row.running === 0} />
            <Figure name={t.columns.scheduled} value={count(row.scheduled)} zero={row.scheduled === 0} />
            <Figure name={t.columns.failed} value={count(row.failed)} zero={row.failed === 0} bad={row.failed > 0} />
            <Figure name={t.columns.done} value={row.rates ? rate(row.rates.done) : t.none} zero={!row.rates?.done} />
            <Figure name={t.columns.p95} value={row.p95_ms === null ? t.none : duration(row.p95_ms)} zero={row.p95_ms === null} />
            <Figure name={t.columns.workers} value={count(row.workers)} zero={false} bad={row.workers === 0 && row.ready > 0} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function running(row: SourceRow): string {
  const cap = row.limits.find((limit) => limit.cap !== null)?.cap;
  return cap == null ? count(row.running) : t.ofLimit(count(row.running), count(cap));
}

export function Figure({ name, value, zero, bad }: { name: string; value: string; zero: boolean; bad?: boolean }) {
  return <td class={`number ${zero ? "zero" : ""} ${bad ? "bad" : ""}`} data-name={name}>{value}</td>;
}

/** Pauses, modes and the lack of workers, in words. */
export function SourceMarks({ row }: { row: SourceRow }) {
  return (
    <span class="marks">
      {row.paused && <Badge kind="warning">{t.paused}</Badge>}
      {!row.paused && row.paused_keys.length > 0 && <Badge kind="warning">{t.pausedKeys(row.paused_keys.length)}</Badge>}
      {row.mode !== "" && <Badge kind="warning">{t.modes[row.mode]}</Badge>}
      {row.workers === 0 && row.ready > 0 && <Badge kind="error">{t.noWorker}</Badge>}
    </span>
  );
}
