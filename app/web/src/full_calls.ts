/*
 * full_calls.ts - what a model of the full module is asked for beside calls.ts, as data that can be posted.
 */
import type { PlainPicture } from "./calls.js";
import type { EngineEvent } from "./engine.js";
import type { Call } from "./rpc.js";

/** An adapter's file, and of PEFT's form the text of adapter_config.json. */
export interface PlainAdapter { file: Blob; config: string }

/** How an adapter is trained; numbers of 0 and what is left out: as in beryl_train.h. */
export interface PlainTraining {
    data: Blob;
    valid: Blob | null;
    /** By the names that the data has for them. */
    pictures: [string, PlainPicture][];
    /** The adapter that is gone on from; 0: a new one. */
    from: number;
    options: Record<string, unknown>;
}

/** Where a training is, and what its last step was like. */
export interface TrainingReport {
    /** Steps done, of how many in all. */
    step: number;
    steps: number;
    /** Examples to learn from and to measure with. */
    rows: number;
    validRows: number;
    /** Of all examples, once: tokens, and those that are learned. */
    dataTokens: number;
    dataTargets: number;
    /** Numbers that are trained. */
    parameters: number;
    /** Device memory of the training, beside the model's. */
    bytes: number;
    /** Of the last step: the mean loss, the gradient's norm before clipping, the learning rate, seconds, tokens, those learned. */
    loss: number;
    gradNorm: number;
    rate: number;
    seconds: number;
    tokens: number;
    targets: number;
    /** Of `valid`, as last measured. */
    validLoss?: number;
}

/** Forms of an adapter's files. */
export type AdapterForm = "peft" | "gguf" | "rullama";

/** Adapters and trainings are numbers that the host gives. */
export interface FullCalls {
    openAdapter: Call<PlainAdapter, number>;
    closeAdapter: Call<{ adapter: number }, null>;
    setAdapters: Call<{ session: number; adapters: { adapter: number; scale: number }[] }, null>;
    /** `adapter`: the one of the training, for sessions. */
    train: Call<PlainTraining, { training: number; adapter: number; report: TrainingReport }, EngineEvent>;
    trainStep: Call<{ training: number }, TrainingReport>;
    trainMeasure: Call<{ training: number }, TrainingReport>;
    trainSave: Call<{ training: number; form: AdapterForm }, Blob[]>;
    /** The training's adapter stays, as it then is. */
    trainClose: Call<{ training: number }, null>;
}
