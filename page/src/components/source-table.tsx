/** Sources with their depth, pace and limits: on Overview and on Sources. */
import type { SourceRow } from "../api.ts";
import { count, duration, percent, rate } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { canOperate } from "../session.ts";
import { LimitButton } from "./limit-dialog.tsx";
import { PageLink } from "./link.tsx";
import { PauseButton } from "./pause-button.tsx";
import { Sparkline } from "./sparkline.tsx";
import { Badge } from "./state.tsx";

interface SourceTableProps { rows: readonly SourceRow[]; onDone: () => void }

export function SourceTable({ rows, onDone }: SourceTableProps) {
  return (
    <table class="rows cards sources">
      <thead>
        <tr>
          <th>{t.columns.source}</th>
          <th class="number">{t.columns.ready}</th>
          <th class="number">{t.columns.oldestReady}</th>
          <th class="number">{t.columns.running}</th>
          <th class="number wider">{t.columns.scheduled}</th>
          <th>{t.columns.done}</th>
          <th class="number" title={t.lastHour}>{t.columns.failedShare}</th>
          <th class="number wide">{t.columns.failed}</th>
          <th class="number" title={t.latencyHint}>{t.columns.latency}</th>
          <th class="number wider" title={t.runTimeHint}>{t.columns.p95}</th>
          <th class="number">{t.columns.workers}</th>
          {canOperate.value && <th><span class="hidden-text">{t.columns.actions}</span></th>}
        </tr>
      </thead>
      <tbody>{rows.map((row) => <Row key={row.name} row={row} onDone={onDone} />)}</tbody>
    </table>
  );
}

function Row({ row, onDone }: { row: SourceRow; onDone: () => void }) {
  const ready = row.ready + row.parked;
  const share = failedShare(row);
  const latency = row.hour?.latency_p95_ms ?? null;
  return (
    <tr>
      <td class="main">
        <PageLink to={pathOf("sources", row.name)}>{row.name}</PageLink>
        <SourceMarks row={row} />
      </td>
      <Figure name={t.columns.ready} value={count(ready)} zero={ready === 0} />
      <Figure name={t.columns.oldestReady} value={row.oldest_ready === null ? t.none : duration(row.oldest_ready * 1000)} zero={row.oldest_ready === null} />
      <Figure name={t.columns.running} value={running(row)} zero={row.running === 0} />
      <Figure name={t.columns.scheduled} value={count(row.scheduled)} zero={row.scheduled === 0} kind="wider" />
      <td class="pace" data-name={t.columns.done}>
        <span class="pace-text">{row.rates ? rate(row.rates.done) : t.none}</span>
        {row.hour && <Sparkline values={row.hour.done} kind="bars" label={t.doneLastHour(row.hour.done.reduce((sum, n) => sum + n, 0))} />}
      </td>
      <Figure name={t.columns.failedShare} value={share === null ? t.none : percent(share)} zero={!share} bad={Boolean(share)} />
      <Figure name={t.columns.failed} value={count(row.failed)} zero={row.failed === 0} kind="wide" />
      <Figure name={t.columns.latency} value={latency === null ? t.none : duration(latency)} zero={latency === null} />
      <Figure name={t.columns.p95} value={row.p95_ms === null ? t.none : duration(row.p95_ms)} zero={row.p95_ms === null} kind="wider" />
      <Figure name={t.columns.workers} value={count(row.workers)} zero={false} bad={row.workers === 0 && row.ready > 0} />
      {canOperate.value && <td class="actions"><PauseButton source={row} onDone={onDone} /> <LimitButton source={row} onDone={onDone} /></td>}
    </tr>
  );
}

/** Of the tasks that ended in the last hour; null: none did. */
export function failedShare({ hour }: SourceRow): number | null {
  if (hour === null) return null;
  const ended = hour.done.reduce((sum, n) => sum + n, hour.failed);
  return ended === 0 ? null : hour.failed / ended;
}

export function running(row: SourceRow): string {
  const cap = row.limits.find((limit) => limit.cap !== null && limit.name === row.name)?.cap;
  return cap == null ? count(row.running) : t.ofLimit(count(row.running), count(cap));
}

interface FigureProps { name: string; value: string; zero: boolean; bad?: boolean; kind?: string }

export function Figure({ name, value, zero, bad, kind = "" }: FigureProps) {
  return <td class={`number ${kind} ${zero ? "zero" : ""} ${bad ? "bad" : ""}`} data-name={name}>{value}</td>;
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
