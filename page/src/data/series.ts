/** Figures over the time that the page is open, in rings of a fixed size: an hour takes no more memory than ten minutes. */

import type { Figure, Figures, Sample } from "./types.ts";

/** Answers that are kept: ten minutes at one a second. */
export const KEPT = 600;

/** Series that are kept. A server has about 300; more come with methods that are called. */
const SERIES_MAX = 1500;

/** The name of a series: that of the figure, with its labels in order. */
export function seriesName(name: string, labels: Record<string, string>): string {
  const list = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return list.length ? `${name}{${list.map(([key, value]) => `${key}="${value}"`).join(",")}}` : name;
}

/** What a series keeps of a sample: the value, and of a summary the number of measurements. */
function valueOf(sample: Sample): number {
  return sample.value ?? sample.count ?? Number.NaN;
}

export class History {
  private readonly times = new Float64Array(KEPT).fill(Number.NaN);
  private readonly rings = new Map<string, Float64Array>();
  private count = 0;
  private byName = new Map<string, Figure>();
  latest: Figures | null = null;

  /** Adds an answer that came at `ms`, milliseconds. */
  add(ms: number, figures: Figures): void {
    const at = this.count % KEPT;
    this.times[at] = ms;
    for (const ring of this.rings.values()) ring[at] = Number.NaN;
    for (const figure of figures.figures) {
      for (const sample of figure.samples) {
        const name = seriesName(figure.name, sample.labels);
        let ring = this.rings.get(name);
        if (ring === undefined && this.rings.size < SERIES_MAX) {
          ring = new Float64Array(KEPT).fill(Number.NaN);
          this.rings.set(name, ring);
        }
        if (ring !== undefined) ring[at] = valueOf(sample);
      }
    }
    this.count++;
    this.latest = figures;
    this.byName = new Map(figures.figures.map((figure) => [figure.name, figure]));
  }

  /** The newest answer's figure of a name. */
  figure(name: string): Figure | undefined {
    return this.byName.get(name);
  }

  /** The newest value of a figure, summed over its samples; null if the server has none. */
  now(name: string): number | null {
    const samples = this.byName.get(name)?.samples;
    return samples?.length ? samples.reduce((sum, sample) => sum + valueOf(sample), 0) : null;
  }

  /** Values of a series, oldest first; NaN where an answer lacked it. */
  values(name: string): number[] {
    const ring = this.rings.get(name);
    return ring === undefined ? [] : this.inOrder(ring);
  }

  /** What a counter grew by a second, between each answer and the one before. A counter that went back began anew. */
  rates(name: string): number[] {
    const values = this.values(name);
    const times = this.inOrder(this.times);
    const rates: number[] = [];
    for (let i = 1; i < values.length; i++) {
      const grown = values[i]! - values[i - 1]!;
      const seconds = (times[i]! - times[i - 1]!) / 1000;
      rates.push(grown >= 0 && seconds > 0 ? grown / seconds : Number.NaN);
    }
    return rates;
  }

  /** The rate over the last `seconds`, which is calmer than between two answers; null before there are two. */
  rate(name: string, seconds = 5): number | null {
    const values = this.values(name);
    const times = this.inOrder(this.times);
    const last = values.length - 1;
    let first = last;
    while (first > 0 && times[last]! - times[first - 1]! <= seconds * 1000 + 200 && values[first - 1]! <= values[first]!) first--;
    return first < last ? ((values[last]! - values[first]!) * 1000) / (times[last]! - times[first]!) : null;
  }

  /** What a counter grew by since the page was opened, or since the oldest answer that is kept. */
  grown(name: string): number | null {
    const values = this.values(name).filter((value) => !Number.isNaN(value));
    return values.length > 1 ? values[values.length - 1]! - values[0]! : null;
  }

  private inOrder(ring: Float64Array): number[] {
    const length = Math.min(this.count, KEPT);
    return Array.from({ length }, (_, i) => ring[(this.count - length + i) % KEPT]!);
  }
}
