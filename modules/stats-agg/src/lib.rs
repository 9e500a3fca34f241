mod config;
mod custody;
