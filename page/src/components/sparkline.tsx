/** A small chart without axes. Its numbers are in the text beside it, or in its label. */

const WIDTH = 120;
const HEIGHT = 28;

interface SparklineProps { values: readonly number[]; kind?: "line" | "bars"; label?: string }

export function Sparkline({ values, kind = "line", label }: SparklineProps) {
  const top = Math.max(...values, 1e-9);
  if (values.length < 2) return <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true" />;
  const step = WIDTH / (kind === "bars" ? values.length : values.length - 1);
  const y = (value: number) => HEIGHT - 1 - (value / top) * (HEIGHT - 3);
  if (kind === "bars") {
    return (
      <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" })}>
        {label && <title>{label}</title>}
        {values.map((value, i) => (
          <rect key={i} x={i * step} width={Math.max(1, step - 1)} y={value > 0 ? Math.min(y(value), HEIGHT - 3) : HEIGHT - 1}
            height={value > 0 ? Math.max(2, HEIGHT - 1 - y(value)) : 1} class={value > 0 ? "" : "zero"} />
        ))}
      </svg>
    );
  }
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${y(value).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="area" d={`M0,${HEIGHT} L${points.join(" L")} L${WIDTH},${HEIGHT} Z`} />
      <path class="line" d={`M${points.join(" L")}`} />
    </svg>
  );
}
