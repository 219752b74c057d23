// The kinds of values that fields hold.

import { z } from 'zod'

import { isBlank } from '../contract.ts'

export const ENV = 'env:[A-Za-z_][A-Za-z0-9_]{0,127}'

/** A text that matches a pattern, all of it. */
export function matches(pattern: string) {
  const all = new RegExp(`^(?:${pattern})$`)
  return z.string().refine((value) => all.test(value))
}

/** A whole number in a range. */
export function whole(lowest: number, highest: number) {
  return z.number().refine((n) => Number.isInteger(n) && lowest <= n && n <= highest)
}

/** Whether a text is a day of the calendar, such as 2026-04-01. */
function isDate(value: string): boolean {
  const isDay = /^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$/.test(value)
  const date = new Date(isDay ? value : NaN)
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(value)
}

export const prose = z.string().refine((value) => !isBlank(value))
/** env:NAME, an ARN or the path of a secret, and behind # a field of it. */
export const reference = matches(`(${ENV}|(?!env:)[!-"$-~]{1,512})(#[!-~]{1,128})?`)
export const day = z.string().refine(isDate)
export const region = matches('[a-z]{2,4}(-[a-z]{2,12}){1,3}-[0-9]{1,2}')
export const agentId = matches('[a-z0-9_-]{1,64}')
export const collectionId = matches('[a-z0-9_-]{3,64}')
export const version = matches('(0|[1-9][0-9]{0,8})(\\.(0|[1-9][0-9]{0,8})){2}')
export const milliseconds = whole(0, 900_000)
export const life = whole(1, 2_147_483_647)
