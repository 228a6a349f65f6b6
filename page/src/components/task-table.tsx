/** Rows of tasks: state, label, reason, age. On narrow screens each row becomes a card. */
import type { TaskRow } from "../api.ts";
import { duration, shortId } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { canOperate } from "../session.ts";
import { PageLink } from "./link.tsx";
import { StateBadge } from "./state.tsx";
import { Ago, Since } from "./time.tsx";

interface TaskTableProps {
  rows: readonly TaskRow[];
  current: number;
  selected: ReadonlySet<string>;
  onSelect: (uuid: string) => void;
  onSelectAll: () => void;
}

export function TaskTable({ rows, current, selected, onSelect, onSelectAll }: TaskTableProps) {
  const isAll = rows.length > 0 && rows.every(({ uuid }) => selected.has(uuid));
  return (
    <table class="rows cards tasks">
      <thead>
        <tr>
          {canOperate.value && <th class="check"><input type="checkbox" aria-label={t.selectAll} checked={isAll} onChange={onSelectAll} /></th>}
          <th class="state-column">{t.columns.state}</th>
          <th>{t.columns.task}</th>
          <th>{t.columns.source}</th>
          <th>{t.columns.reason}</th>
          <th class="number">{t.columns.attempt}</th>
          <th class="time">{t.columns.when}</th>
          <th class="number">{t.columns.duration}</th>
          <th class="id">{t.columns.id}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, i) => (
          <tr key={row.uuid} data-uuid={row.uuid} class={`${i === current ? "current" : ""} ${selected.has(row.uuid) ? "selected" : ""}`}>
            {canOperate.value && (
              <td class="check"><input type="checkbox" aria-label={t.select(row.label || row.short_id)} checked={selected.has(row.uuid)} onChange={() => onSelect(row.uuid)} /></td>
            )}
            <td class="state-column"><StateBadge state={row.state} /></td>
            <td class="main"><PageLink to={pathOf("tasks", row.uuid)}>{title(row)}</PageLink></td>
            <td class="source">{row.source}</td>
            <td class="reason"><Reason row={row} /></td>
            <td class="number" data-name={t.columns.attempt}>{attempt(row)}</td>
            <td class="time"><Moment row={row} /></td>
            <td class="number" data-name={t.columns.duration}>{row.state === "running" ? <Since at={row.started_at} /> : row.duration_ms === null ? t.none : duration(row.duration_ms)}</td>
            <td class="id"><code>{row.short_id}</code></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The label, or the arguments if there is none. */
export function title(row: TaskRow): string {
  if (row.label && row.label !== row.source) return row.label;
  return row.args_preview === "" || row.args_preview === "{}" || row.args_preview === "null" ? row.source : row.args_preview;
}

function attempt(row: TaskRow): string {
  if (row.attempt === 0 || (row.attempt === 1 && row.started_at === null)) return t.none;
  return row.max_retries > 0 ? t.ofLimit(String(row.attempt), String(row.max_retries + 1)) : String(row.attempt);
}

function Reason({ row }: { row: TaskRow }) {
  if (row.state === "failed" && row.error) return <span class="error-text">{t.errorText(row.error.type, row.error.message)}</span>;
  if (row.progress && row.progress[1] > 0) return <Progress done={row.progress[0]} total={row.progress[1]} />;
  if (row.reason) return <span>{row.reason}</span>;
  return <span class="none">{row.state === "running" && row.worker ? t.on(shortId(row.worker)) : ""}</span>;
}

export function Progress({ done, total }: { done: number; total: number }) {
  const share = Math.max(0, Math.min(1, done / total));
  return (
    <span class="progress">
      <progress value={share} max={1} aria-label={t.progress} />
      <span>{t.percent(share)}</span>
    </span>
  );
}

/** The time that matters in this state. */
function Moment({ row }: { row: TaskRow }) {
  if (row.ended_at) return <Ago at={row.ended_at} />;
  if (row.state === "running") return <Ago at={row.started_at} />;
  return <Ago at={row.state === "scheduled" ? row.due_at : row.added_at} />;
}
