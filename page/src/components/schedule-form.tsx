/** A schedule that is data: new, or edited. The next five runs are shown while one types. */
import { useEffect, useState } from "preact/hooks";
import { ApiError, type Plan, type PlanRow, type ScheduleRow } from "../api.ts";
import { wallTime } from "../format.ts";
import { t } from "../messages.ts";
import { api, notify } from "../session.ts";
import { Dialog, Field } from "./dialog.tsx";
import { Badge } from "./state.tsx";

const TYPING = 250;
const SHOWN = 5;
const OVERLAPS = ["skip", "allow", "queue"] as const;
const CATCH_UPS = ["latest", "all", "none"] as const;

interface ScheduleFormProps { row?: ScheduleRow; sources: readonly string[]; onClose: () => void; onDone: () => void }

export function ScheduleForm({ row, sources, onClose, onDone }: ScheduleFormProps) {
  const form = row?.form;
  const [fields, setFields] = useState({
    name: row?.name ?? "", source: row?.source ?? "", args: JSON.stringify(row?.args ?? {}), rule: form?.rule ?? "",
    tz: form?.tz ?? Intl.DateTimeFormat().resolvedOptions().timeZone, overlap: form?.overlap ?? "skip",
    catch_up: form?.catch_up ?? "latest", jitter: String(form?.jitter ?? 0), reason: "",
  });
  const { plan, trouble } = usePreview(fields.rule, fields.tz, fields.jitter);
  const text = (name: keyof typeof fields, label: string, hint = "", more: Record<string, unknown> = {}) => (
    <Field label={label} hint={hint}>
      <input value={fields[name]} spellcheck={false} {...more} onInput={(event) => setFields({ ...fields, [name]: event.currentTarget.value })} />
    </Field>
  );
  const choice = (name: "overlap" | "catch_up", label: string, values: readonly string[], names: Record<string, string>) => (
    <Field label={label}>
      <select value={fields[name]} onChange={(event) => setFields({ ...fields, [name]: event.currentTarget.value })}>
        {values.map((value) => <option key={value} value={value}>{names[value]}</option>)}
      </select>
    </Field>
  );
  const confirm = async () => {
    const { name, source, args, jitter, ...rest } = fields;
    const body: Record<string, unknown> = { ...rest, jitter: Number(jitter) };
    const isSame = row !== undefined && args === JSON.stringify(row.args);
    if (!isSame) body.args = jsonObject(args);
    if (row) await api.send("PATCH", `/schedules/${encodeURIComponent(name)}`, body, { "If-Match": row.revision });
    else await api.send("POST", "/schedules", { ...body, name, source });
    notify("done", t.schedulesDone.save(name));
    onDone();
  };
  return (
    <Dialog title={row ? t.editTitle(row.name) : t.newSchedule} action={t.save} disabled={trouble !== "" || fields.rule === ""} onClose={onClose} onConfirm={confirm}>
      <div class="form">
        {!row && text("name", t.columns.name, "", { required: true, maxLength: 200 })}
        {!row && text("source", t.columns.source, "", { required: true, maxLength: 200, list: "known-sources" })}
        {!row && <datalist id="known-sources">{sources.map((name) => <option key={name} value={name} />)}</datalist>}
        {text("args", t.argumentsJson)}
        {text("rule", t.columns.rule, t.ruleHint, { required: true })}
        {text("tz", t.timeZone)}
        {choice("overlap", t.overlap, OVERLAPS, t.overlaps)}
        {choice("catch_up", t.catchUp, CATCH_UPS, t.catchUps)}
        {text("jitter", t.jitter, "", { type: "number", min: 0, step: "any" })}
        {text("reason", t.reason, t.reasonHint, { maxLength: 200 })}
      </div>
      <div class="preview" aria-live="polite">
        {trouble ? <p class="trouble">{trouble}</p> : plan && <><p>{plan.words}</p><Planned rows={plan.items} /></>}
      </div>
    </Dialog>
  );
}

/** An object of JSON; ApiError, so that the dialog shows it. */
export function jsonObject(text: string): unknown {
  try {
    const found: unknown = JSON.parse(text || "{}");
    if (typeof found === "object" && found !== null && !Array.isArray(found)) return found;
  } catch { /* the message below is clearer */ }
  throw new ApiError(422, "invalid", t.noObject);
}

function usePreview(rule: string, tz: string, jitter: string): { plan: Plan | null; trouble: string } {
  const [found, setFound] = useState<{ plan: Plan | null; trouble: string }>({ plan: null, trouble: "" });
  useEffect(() => {
    const abort = new AbortController();
    const timer = window.setTimeout(async () => {
      if (rule.trim() === "") return setFound({ plan: null, trouble: "" });
      try {
        setFound({ plan: await api.get<Plan>("/schedule-plan", { rule, tz, jitter: Number(jitter) || 0, limit: SHOWN }, abort.signal), trouble: "" });
      } catch (error) {
        if (error instanceof ApiError) setFound({ plan: null, trouble: error.message });
      }
    }, TYPING);
    return () => {
      window.clearTimeout(timer);
      abort.abort();
    };
  }, [rule, tz, jitter]);
  return found;
}

/** Coming runs, in the zone of their schedule; changes of the clock are marked. */
export function Planned({ rows }: { rows: readonly PlanRow[] }) {
  return (
    <ul class="runs">
      {rows.map((run) => (
        <li key={run.at}><time dateTime={run.at}>{wallTime(run.wall)}</time>{run.mark !== "" && <Badge kind="warning">{t.marks[run.mark]}</Badge>}</li>
      ))}
    </ul>
  );
}
