import { ApiError, type Rows, type ScheduleRow } from "../api.ts";
import { Empty, Loaded } from "../components/empty.tsx";
import { Icon } from "../components/icon.tsx";
import { PageLink } from "../components/link.tsx";
import { Badge } from "../components/state.tsx";
import { Ago, Clock } from "../components/time.tsx";
import { count } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, canOperate, notify } from "../session.ts";
import { useView } from "../view.ts";

export function SchedulesPage() {
  const { data, error, reload } = useView<Rows<ScheduleRow>>("/schedules", {}, {
    watch: "watch=overview", on: ["invalidate"], pause: 1000, every: 5000,
  });
  return (
    <div class="stack">
      <header class="page-head"><h1>{t.pages.schedules}</h1><span class="hint">{data.value && count(data.value.items.length)}</span></header>
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (items.length === 0
          ? <Empty icon="schedules" title={t.empty.schedules} text={t.empty.schedulesText} code={t.empty.schedulesCode} />
          : <section class="card"><Table rows={items} onDone={() => reload(true)} /></section>)}
      </Loaded>
    </div>
  );
}

function Table({ rows, onDone }: { rows: readonly ScheduleRow[]; onDone: () => void }) {
  return (
    <table class="rows cards">
      <thead>
        <tr>
          <th class="state-column">{t.columns.state}</th><th>{t.columns.name}</th><th>{t.columns.rule}</th><th>{t.columns.source}</th>
          <th class="time">{t.columns.next}</th><th class="time">{t.columns.last}</th><th class="number">{t.columns.runs}</th><th>{t.columns.owner}</th>
          {canOperate.value && <th><span class="hidden-text">{t.columns.actions}</span></th>}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.name}>
            <td class="state-column"><ScheduleState row={row} /></td>
            <td class="main">{row.name}</td>
            <td data-name={t.columns.rule}>{row.rule}</td>
            <td class="source"><PageLink to={pathOf("sources", row.source)}>{row.source}</PageLink></td>
            <td class="time" data-name={t.columns.next}>{row.enabled && !row.orphan ? <Ago at={row.next_run} /> : <span class="none">{row.reason || t.none}</span>}</td>
            <td class="time" data-name={t.columns.last}><Clock at={row.last_run} /></td>
            <td class="number" data-name={t.columns.runs}>{count(row.run_count)}</td>
            <td data-name={t.columns.owner}><Badge kind="quiet">{t.owners[row.owner]}</Badge></td>
            {canOperate.value && <td class="actions"><Actions row={row} onDone={onDone} /></td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Actions({ row, onDone }: { row: ScheduleRow; onDone: () => void }) {
  const send = async (action: "run" | "pause" | "resume") => {
    try {
      await api.send("POST", `/schedules/${encodeURIComponent(row.name)}/${action}`, {});
      notify("done", t.schedulesDone[action](row.name));
      onDone();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      notify("error", error.message);
    }
  };
  return (
    <>
      <button onClick={() => void send("run")}><Icon name="play" />{t.runNow}</button>
      {row.enabled
        ? <button onClick={() => void send("pause")}><Icon name="paused" />{t.pauseSchedule}</button>
        : <button class="primary" onClick={() => void send("resume")}><Icon name="play" />{t.resume}</button>}
    </>
  );
}

function ScheduleState({ row }: { row: ScheduleRow }) {
  if (row.orphan) return <span class="state state-failed"><Icon name="failed" /><span>{t.scheduleStates.orphan}</span></span>;
  if (!row.enabled) return <span class="state state-paused"><Icon name="paused" /><span>{t.scheduleStates.paused}</span></span>;
  return <span class="state state-succeeded"><Icon name="succeeded" /><span>{t.scheduleStates.active}</span></span>;
}
