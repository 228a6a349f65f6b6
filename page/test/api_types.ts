// The types of the page against those of docs/openapi.json: a difference is an error of `tsc`.
import type { components } from "../generated/openapi.d.ts";
import type * as flows from "../src/api-flows.ts";
import type * as page from "../src/api.ts";

type Schemas = components["schemas"];
type Fits<Answer extends Page, Page> = [Answer, Page];

export type Checks = [
  Fits<Schemas["TaskList"]["items"][number], page.TaskRow>,
  Fits<Schemas["TaskList"], page.TaskList>,
  Fits<Schemas["TaskDetail"], page.TaskDetail>,
  Fits<Schemas["StreamList"], page.StreamList>,
  Fits<Schemas["SourceRow"], page.SourceRow>,
  Fits<Schemas["WorkerRow"], page.WorkerRow>,
  Fits<Schemas["ScheduleRow"], page.ScheduleRow>,
  Fits<Schemas["FailureList"], page.FailureList>,
  Fits<Schemas["AttentionRow"], page.AttentionRow>,
  Fits<Schemas["Overview"], page.Overview>,
  Fits<Schemas["StatusDetail"], page.Status>,
  Fits<Schemas["FlowRow"], flows.FlowRow>,
  Fits<Schemas["FlowDetail"], flows.FlowDetail>,
  Fits<Schemas["BatchRow"], flows.BatchRow>,
  Fits<Schemas["BatchDetail"], flows.BatchDetail>,
  Fits<Schemas["WaitingList"], flows.WaitingList>,
  Fits<Schemas["OutboxDetail"], page.OutboxDetail>,
  Fits<Schemas["EventList"], page.EventList>,
  Fits<Schemas["PayloadText"], page.PayloadText>,
  Fits<Schemas["DeadLetterList"], page.DeadLetterList>,
  Fits<Schemas["AgentRow"], page.AgentRow>,
  Fits<Schemas["AgentList"], page.AgentList>,
  Fits<Schemas["ChartDetail"], page.ChartSeries>,
  Fits<Schemas["SourceDetail"], page.SourceDetail>,
  Fits<Schemas["HandleRow"], page.HandleRow>,
  Fits<Schemas["AuditList"], page.AuditList>,
  Fits<Schemas["BulkActionDetail"], page.BulkAction>,
];
