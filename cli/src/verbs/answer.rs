//! `answer`: answer what a run asks, and go on with it.

use std::path::PathBuf;

use backtrail_core::error::{Error, Result};
use backtrail_core::run::{OpenQuestion, Run, Status};
use backtrail_core::workflow::answers::{
    AnswerSchema, check_answers, schema_from_json, text_schema, told,
};
use backtrail_core::workflow::drive::parse_value;
use backtrail_core::workflow::file::definition::ValueType;
use serde_json::{Map, Value, json};

use super::resume::{self, How};
use super::run::given;
use crate::context::App;
use crate::detach;
use crate::exit::{self, Code};
use crate::running::{is_external, printable};

/// Arguments of `answer`.
#[derive(clap::Args)]
#[command(after_help = "Without --answer the questions are shown.

Examples:
  backtrail answer latest
  backtrail answer latest --answer approve=true
  backtrail answer latest --answer decision=request_changes --answer comment='see line 3'")]
pub(crate) struct Args {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,
    /// An answer; K=@FILE reads a file
    #[arg(long = "answer", value_name = "K=V")]
    answers: Vec<String>,
    /// A JSON file with answers
    #[arg(long, value_name = "FILE")]
    answers_file: Option<PathBuf>,
    /// The question that is meant, refused when another is open
    #[arg(long, value_name = "ID")]
    interaction: Option<String>,
    /// Record the answers and do not go on
    #[arg(long)]
    no_resume: bool,
    #[command(flatten)]
    how: How,
}

/// Answers.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    if args.how.apart.detach {
        return detach::start(app).await;
    }
    let (place, run) = app.find_run(&args.run).await?;
    let runs = app.runs(&place);
    let question = open_question(&runs.open_question(&run).await?, &run, args)?;
    let schema = schema(&question)?;
    let mut given = given::object_file(args.answers_file.as_deref()).await?;
    for (key, text) in given::pairs(&args.answers, "--answer").await? {
        let value_type = schema.get(&key).map_or(ValueType::String, |spec| spec.value_type);
        given.insert(key.clone(), parse_value(&format!("answer {key:?}"), value_type, &text)?);
    }
    let recorded = question.interaction.as_ref().and_then(|i| i.answers.clone());
    if given.is_empty() && recorded.is_none() {
        return Ok(show(app, &run, &question));
    }
    if !given.is_empty() {
        let answers = checked(&schema, &given, &run)?;
        runs.answer(&run, &question.id, &answers).await?;
    }
    if args.no_resume || *run.status() == Status::Queued || is_external(&run) {
        if app.out.is_json() {
            let id = question.id.as_str();
            app.out.json(&json!({"run_id": run.id(), "interaction": id, "answered": true}));
        } else {
            let next = match is_external(&run) {
                true => String::from("its runtime goes on"),
                false => format!("backtrail resume {}", run.id()),
            };
            app.out.summary(format!("answered; {next}"));
        }
        return Ok(exit::COMPLETE);
    }
    let place = app.place_of(place, &run).await?;
    resume::go_on(app, &place, &run, &args.how).await
}

fn open_question(open: &Option<OpenQuestion>, run: &Run, args: &Args) -> Result<OpenQuestion> {
    let waits = matches!(run.status(), Status::PausedWaitingHuman | Status::Queued);
    let Some(question) = open.clone().filter(|_| waits) else {
        let text = format!("run {} is {} and asks nothing", run.id(), run.status());
        return Err(Error::refused("no-question", text)
            .with_hint(format!("backtrail runs show {}", run.id())));
    };
    match &args.interaction {
        Some(wanted) if wanted != question.id.as_str() => {
            let text = format!("the open question is {}, not {wanted}", question.id);
            Err(Error::refused("other-question", text))
        }
        _ => Ok(question),
    }
}

fn schema(question: &OpenQuestion) -> Result<AnswerSchema> {
    let kept = question.interaction.as_ref().and_then(|i| i.answer_schema.as_ref());
    match kept {
        Some(schema) => schema_from_json(schema).map_err(Error::corrupt),
        None => {
            let keys = question.questions.as_object().into_iter().flat_map(Map::keys);
            Ok(text_schema(keys))
        }
    }
}

fn checked(
    schema: &AnswerSchema,
    given: &Map<String, Value>,
    run: &Run,
) -> Result<Map<String, Value>> {
    check_answers(schema, given).map_err(|problems| {
        let told = told(&problems);
        Error::invalid(told.join("; "))
            .with_code("bad-answers")
            .with_detail("problems", told)
            .with_hint(format!("backtrail answer {} shows what is asked", run.id()))
    })
}

/// Prints what is asked.
fn show(app: &App, run: &Run, question: &OpenQuestion) -> Code {
    let schema = question.interaction.as_ref().and_then(|i| i.answer_schema.clone());
    if app.out.is_json() {
        app.out.json(&json!({
            "run_id": run.id(),
            "interaction": question.id.as_str(),
            "questions": question.questions,
            "answers": schema,
            "exit_code": exit::USAGE.0,
        }));
        return exit::USAGE;
    }
    for (key, text) in question.questions.as_object().into_iter().flatten() {
        let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
        app.out.line(format!("{}: {}", printable(key), printable(&text)));
    }
    for (key, spec) in schema.as_ref().and_then(Value::as_object).into_iter().flatten() {
        app.out.line(format!("  --answer {}=…   {}", printable(key), printable(&spec.to_string())));
    }
    app.out.notice(format!("backtrail answer {} --answer KEY=VALUE", run.id()));
    exit::USAGE
}
